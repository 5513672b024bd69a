"""Repeat a measurement until it has settled or its time budget is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from time import perf_counter

import numpy as np

from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S

Run = Callable[[int], float]  # does the work this many times and returns the seconds taken
LEAST, MOST = 7, 300  # samples
ENOUGH_WHEN_SLOW = 3  # samples, once the budget is spent
WIDE = 0.10  # fraction of the median; quartiles further apart are a reason for doubt


def timed(work: Callable[[], object]) -> Run:
    """Return a function that does `work` a number of times and returns the host's seconds."""

    def run(count: int) -> float:
        started = perf_counter()
        for _ in range(count):
            work()
        return perf_counter() - started

    return run


@dataclass(frozen=True)
class Effort:
    """Seconds of the warm-up, a sample, the pause between samples, and the entire measurement.

    `lead_s` is the head start of the host: the device waits this long before it begins a sample.
    """

    budget_s: float = 0.5
    warm_s: float = 0.05
    sample_s: float = 0.005
    rest_s: float = 0.0
    lead_s: float = 3e-4
    precision: float = 0.001  # relative standard error of the median at which to stop

    def scaled(self, factor: float) -> Effort:
        """Return the same effort with `factor` times the budget and the warm-up."""
        return replace(self, budget_s=self.budget_s * factor, warm_s=self.warm_s * factor)


@dataclass(frozen=True)
class Sample:
    """The samples of one measurement; `seconds` has one time per repetition for each sample."""

    seconds: tuple[float, ...]
    repetitions: int  # per sample

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def quick(self) -> float:
        """The 10th percentile of the seconds per repetition."""
        return float(np.quantile(self.seconds, 0.1))

    @property
    def quartiles(self) -> tuple[float, float]:
        low, high = np.quantile(self.seconds, [0.25, 0.75])
        return float(low), float(high)

    @property
    def flags(self) -> list[str]:
        """The reasons to doubt the median; [] if there are none."""
        low, high = self.quartiles
        spread = (high - low) / self.median if self.median > 0 else 0.0
        return [f"its quartiles are {100 * spread:.0f} % of the median apart"] if spread > WIDE else []


def sample(run: Run, effort: Effort, clock: Clock | None = None) -> Sample:
    """Warm up, choose the repetitions per sample, and take samples until their median is precise enough.

    Also stops after the budget with at least ENOUGH_WHEN_SLOW samples, or after MOST samples.
    """
    clock = clock or SystemClock()
    started = clock.now_ns()
    count = max(1, ceil(effort.sample_s / _warm(run, effort, clock)))
    seconds: list[float] = []
    while not _enough(seconds, effort, (clock.now_ns() - started) / NS_PER_S):
        if seconds and effort.rest_s:
            clock.sleep(effort.rest_s)
        seconds.append(run(count) / count)
    return Sample(tuple(seconds), count)


def _warm(run: Run, effort: Effort, clock: Clock) -> float:
    """Run for the time of the warm-up; return the seconds per repetition at its end."""
    started, count = clock.now_ns(), 1
    while True:
        once = max(run(count) / count, 1e-9)
        if clock.now_ns() - started >= NS_PER_S * effort.warm_s:
            return once
        count = min(2 * count, max(1, ceil(effort.sample_s / once)))


def _enough(seconds: Sequence[float], effort: Effort, spent_s: float) -> bool:
    if len(seconds) < ENOUGH_WHEN_SLOW:
        return False
    return (
        spent_s >= effort.budget_s
        or len(seconds) >= MOST
        or (len(seconds) >= LEAST and uncertainty(seconds) <= effort.precision)
    )


def uncertainty(seconds: Sequence[float]) -> float:
    """Return the relative standard error of the median, from the quartiles of nearly normal values:

    1.2533 sigma / sqrt(n), with sigma = (q3 - q1) / 1.349.
    """
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    return float(0.929 * (high - low) / middle / sqrt(len(seconds))) if middle > 0 else 0.0
