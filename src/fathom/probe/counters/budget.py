"""How the steps of the phase `counters` are divided: bursts whose samples fit into one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fathom.probe.orders import Job

INTERVAL_NS = 20_000
# What an image does not hold is lost once sampling has stopped (CUPTI 13.0). One takes about 20 KB and 1.5 KB a
# counter for each sample (GH100).
IMAGE_BYTES, SAMPLE_BYTES, COUNTER_BYTES = 384 << 20, 20_000, 1_500
LEAST_SAMPLES, MOST_SAMPLES = 250, 2_500
MOST_STEPS = 50
ROUNDS = 8  # bursts of each group: about 16,000 samples


def samples(counters: int) -> int:
    """How many samples of that many counters fit into one image."""
    fitting = IMAGE_BYTES // (SAMPLE_BYTES + COUNTER_BYTES * counters)
    return max(LEAST_SAMPLES, min(MOST_SAMPLES, fitting))


def burst(step_ns: float, interval_ns: int, counters: int, most: int = MOST_STEPS) -> tuple[int, int]:
    """(whole steps, interval in ns) of one burst. A step too long for one is sampled less often."""
    room = samples(counters)
    step = round(step_ns) or room * interval_ns
    windows = min(most, room * interval_ns // step)
    return (windows, interval_ns) if windows else (1, -(-step // room))


def jobs(step_ns: float, groups: Sequence[Sequence[str]], wanted: Mapping[str, Any]) -> list[Job]:
    """One job a burst: the groups in turn, `wanted["rounds"]` times, each of `wanted["steps"]` steps at most.

    `step_ns` is 0 where it is not known.
    """
    most = int(wanted.get("steps") or MOST_STEPS)
    interval = int(wanted.get("interval_ns") or INTERVAL_NS)
    divided = [burst(step_ns, interval, len(names), most) for names in groups]
    order = [group for _ in range(int(wanted.get("rounds") or ROUNDS)) for group in range(len(groups))]
    return [
        Job("counters", divided[group][0], group=group, interval_ns=divided[group][1], last=n == len(order))
        for n, group in enumerate(order, 1)
    ]
