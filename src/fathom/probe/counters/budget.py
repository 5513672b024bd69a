"""How the steps of the phase `counters` are divided: bursts that the hardware buffer surely holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fathom.probe.orders import Job

INTERVAL_NS = 20_000
MOST_SAMPLES = 5_000  # a burst: half of what 256 MiB hold of a hundred counters
MOST_STEPS = 50
ROUNDS = 6  # bursts of each group: 30,000 samples


def burst(step_ns: float, interval_ns: int = INTERVAL_NS, most: int = MOST_STEPS) -> tuple[int, int]:
    """(whole steps, interval in ns) of one burst. A step too long for one is sampled less often."""
    step = round(step_ns) or MOST_SAMPLES * interval_ns
    windows = min(most, MOST_SAMPLES * interval_ns // step)
    return (windows, interval_ns) if windows else (1, -(-step // MOST_SAMPLES))


def jobs(step_ns: float, groups: int, wanted: Mapping[str, Any]) -> list[Job]:
    """One job a burst: the groups in turn, `wanted["rounds"]` times, each of `wanted["steps"]` steps at most.

    `step_ns` is 0 where it is not known.
    """
    most = int(wanted.get("steps") or MOST_STEPS)
    windows, interval = burst(step_ns, int(wanted.get("interval_ns") or INTERVAL_NS), most)
    rounds = int(wanted.get("rounds") or ROUNDS)
    order = [group for _ in range(rounds) for group in range(groups)]
    return [
        Job("counters", windows, group=group, interval_ns=interval, last=number == len(order))
        for number, group in enumerate(order, 1)
    ]
