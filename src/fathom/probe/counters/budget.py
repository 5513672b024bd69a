"""Divide the counter phase into bursts whose samples fit into one counter image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fathom.probe.orders import Job
from fathom.probe.plan import CountersPlan

INTERVAL_NS = 20_000
# Samples beyond an image's capacity are lost once sampling stops (CUPTI 13.0). A sample takes about
# 20 KB, plus 1.5 KB per counter (GH100).
IMAGE_BYTES, SAMPLE_BYTES, COUNTER_BYTES = 448 << 20, 20_000, 1_500
LEAST_SAMPLES, MOST_SAMPLES = 250, 8_000
MOST_STEPS = 50
ENOUGH_SAMPLES = 16_000  # per group
ENOUGH_ACTIVE = 5_000.0  # active samples, counted as if all multiprocessors were busy in each
MOST_TIMES = 4  # multiple of the planned bursts, if the device is mostly idle


def samples(counters: int) -> int:
    """Return how many samples of `counters` counters fit into one counter image."""
    fitting = IMAGE_BYTES // (SAMPLE_BYTES + COUNTER_BYTES * counters)
    return max(LEAST_SAMPLES, min(MOST_SAMPLES, fitting))


def burst(step_ns: float, interval_ns: int, counters: int, most: int = MOST_STEPS) -> tuple[int, int]:
    """Return the full steps of one burst, and its interval in ns, which is longer for very long steps."""
    room = samples(counters)
    step = round(step_ns) or room * interval_ns
    windows = min(most, room * interval_ns // step)
    return (windows, interval_ns) if windows else (1, -(-step // room))


def jobs(groups: Sequence[Sequence[str]], wanted: CountersPlan) -> list[Job]:
    """Return one job per burst; `fitted` sets its size when its turn comes.

    Groups alternate, because a program may end or change its work. The first, largest group begins. Each
    gets `wanted["samples"]` samples or `wanted["rounds"]` bursts.
    """
    rounds = [int(wanted.get("rounds") or -(-enough(wanted) // samples(len(names)))) for names in groups]
    turns = sorted((turn / count, group) for group, count in enumerate(rounds) for turn in range(count))
    return [Job("counters", 0, group=group) for _, group in turns]


def fitted(job: Job, step_ns: float, groups: Sequence[Sequence[str]], wanted: CountersPlan) -> Job:
    """Return the job sized for steps of `step_ns` ns (0 if unknown), at most `wanted["steps"]` steps."""
    most, interval = int(wanted.get("steps") or MOST_STEPS), int(wanted.get("interval_ns") or INTERVAL_NS)
    windows, interval_ns = burst(step_ns, interval, len(groups[job.group]), most)
    return replace(job, windows=windows, interval_ns=interval_ns)


def enough(wanted: CountersPlan) -> int:
    """Return the number of samples that each group needs."""
    return int(wanted.get("samples") or ENOUGH_SAMPLES)


class Tally:
    """Counts each group's active samples, because samples of an idle device say nothing about kernels."""

    def __init__(self, planned: Sequence[Job], wanted: CountersPlan) -> None:
        self._enough_active = ENOUGH_ACTIVE * enough(wanted) / ENOUGH_SAMPLES
        self._left = Counter(job.group for job in planned)
        self._more = Counter({group: (MOST_TIMES - 1) * count for group, count in self._left.items()})
        self._active: dict[int, float] = {}

    def again(self, job: Job, active: float) -> bool:
        """Return whether to repeat the burst, because its group still has too few active samples."""
        self._left[job.group] -= 1
        known = self._active[job.group] = self._active.get(job.group, 0.0) + active
        if self._left[job.group] > 0 or known >= self._enough_active or not self._more[job.group]:
            return False
        self._left[job.group] += 1
        self._more[job.group] -= 1
        return True
