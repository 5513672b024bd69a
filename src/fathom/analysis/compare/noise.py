"""The noise of a change: the difference of two means that runs of one program would stay within.

Few steps are recorded, so a variance is moderated: averaged with a prior of the weight of PRIOR values
(Smyth, Linear models and empirical Bayes methods, 2004). Within a run the prior is the usual relative scatter
of entries of the same kind. Between runs it is a constant, which also stands in for a side with one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log1p, sqrt

import msgspec
import numpy as np

from fathom.analysis.compare.sides import SideEntry
from fathom.analysis.entries import DEVICE_WORK
from fathom.timing import student

PRIOR = 8.0  # values
KNOWN = 50.0  # degrees of freedom of a variance that is assumed
DEVICE, HOST = "device", "host"
# Relative standard deviation between runs of one program on one machine: of an entry, and of all device work
# or host time together. Measured: `benchmarks.comparison.between`.
SCATTER = {DEVICE: 0.0035, HOST: 0.04}
OVERALL = {DEVICE: 0.003, HOST: 0.04}
FEW = 0.05  # least scatter between runs with fewer: one program's steps may have two lengths, 5 % apart
DISTURBED = 0.5  # of the scatter of single steps: the least scatter between runs
LONG = 0.01  # of the step
LEAST = {DEVICE: 0.001, HOST: 0.02}  # usual relative scatter between steps, at least
BUSY = 0.1  # share of the host's processors that other programs use without disturbing
ALL_BUT = 0.95  # of the processors: a larger share of others counts as this
INFERRED = 0.2  # relative error of inferred profiling overhead, see `clean.INFLATION`
CONFIDENCE = 0.99
WIDEST = 10.0  # factor by which other programs may change a step: a wider interval says nothing
BLOCKS, SHORTEST = 10, 3  # parts of a run's steps, whose means are nearly independent; steps of a part
STEPS = 0.02  # usual relative scatter of clean steps; the median of 60 recordings on H200s is 1.7 %


class Usual(msgspec.Struct, frozen=True):
    """The usual scatter of a step's entries, as relative standard deviations by kind of entry."""

    device: float
    host: float

    def of(self, entry: str) -> float:
        """Return that of an entry."""
        return self.device if kind_of(entry) == DEVICE else self.host


class Variance(msgspec.Struct, frozen=True):
    """A part of the variance of a side's mean, with its degrees of freedom."""

    value: float
    freedom: float


def kind_of(entry: str) -> str:
    """Return whether the device or the host determines an entry's time."""
    return DEVICE if entry in DEVICE_WORK else HOST


def usual_scatter(entries: Sequence[SideEntry]) -> Usual:
    """Return the usual scatter of the entries of one side; short ones, which scatter more, do not count."""
    least = LONG * sum(entry.ns for entry in entries)
    scatter: dict[str, list[float]] = {DEVICE: [LEAST[DEVICE]], HOST: [LEAST[HOST]]}
    for entry in entries:
        for steps in entry.each:
            if len(steps) > 1 and np.mean(steps) > least:
                scatter[kind_of(entry.entry)].append(float(np.std(steps, ddof=1) / np.mean(steps)))
    middle = {kind: max(LEAST[kind], float(np.median(values))) for kind, values in scatter.items()}
    return Usual(middle[DEVICE], middle[HOST])


def variances(
    mean: float,
    runs: Sequence[float],
    each: Sequence[Sequence[float]],
    within: float,
    between: float,
    adjusted: float = 0.0,
) -> list[Variance]:
    """Return the variances of a side's mean: between its runs, within each, and of what was inferred.

    `within` and `between` are relative standard deviations, for steps and for runs; `adjusted` is a part of
    the mean that was inferred.
    """
    count = len(runs)
    steps = [_moderated((within * mean) ** 2, values) / max(len(values), 1) for values in each]
    freedom = PRIOR + sum(max(len(values) - 1, 0) for values in each)
    return [
        Variance(_moderated((between * mean) ** 2, runs) / count, KNOWN + count - 1),
        Variance(sum(steps) / count**2, freedom),
        Variance((INFERRED * adjusted) ** 2, KNOWN),
    ]


def _moderated(prior: float, values: Sequence[float]) -> float:
    count = max(len(values) - 1, 0)
    own = float(np.var(values, ddof=1)) if count else 0.0
    return (PRIOR * prior + count * own) / (PRIOR + count)


def between_runs(usual: Mapping[str, float], others: float) -> dict[str, float]:
    """Return the scatter between runs by kind, where other programs used a share of the processors."""
    return {**usual, HOST: max(usual[HOST], contention(others) if others > BUSY else 0.0)}


def contention(others: float) -> float:
    """Return the scatter, in logarithms, between runs beside programs that use a share of the processors.

    In the worst case, the program could use all processors and gets the rest, so its time depends on
    their load by a factor of up to 1 / (1 - share): 1.4 for a share of 30 %, but 6.7 for 85 %.
    """
    return -log1p(-min(max(others, 0.0), ALL_BUT))


def of_entry(side: SideEntry, usual: Usual, others: float) -> list[Variance]:
    """Return the variances of an entry's mean."""
    between = between_runs(SCATTER, others)[kind_of(side.entry)]
    return variances(side.ns, side.runs, side.each, usual.of(side.entry), between, side.adjusted_ns)


def band(parts: Sequence[Variance], tests: int = 1) -> float:
    """Return the half-width of the interval of a difference, with CONFIDENCE over all `tests` together.

    The degrees of freedom are Welch's (The generalization of Student's problem, 1947).
    """
    total = sum(part.value for part in parts)
    if total <= 0:
        return 0.0
    freedom = total**2 / sum(part.value**2 / part.freedom for part in parts)
    tail = (1 - CONFIDENCE) / 2 / max(tests, 1)
    return student(1 - tail, freedom) * sqrt(total)


def blocks(values: Sequence[float], statistic: Callable[[np.ndarray], float]) -> list[float]:
    """Return a statistic of up to BLOCKS consecutive parts of a run's steps; few steps stay as they are.

    Neighbouring steps are alike, because clocks and caches change slowly; long parts are less so.
    """
    count = min(BLOCKS, len(values) // SHORTEST)
    if count < 2:
        return list(values)
    return [float(statistic(part)) for part in np.array_split(np.asarray(values, float), count)]
