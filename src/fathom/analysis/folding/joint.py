"""Align the bursts of one group jointly, with the same values of states.

If little ran in a burst, almost any shift explains it, because each part of a state may take the value that
fits best. But all bursts share these values: once they are known, few samples determine the shift.
"""

from __future__ import annotations

import numpy as np

from fathom.analysis.folding.parts import Parts
from fathom.analysis.folding.profile import (
    CLOSE,
    DIVIDED,
    NARROW,
    WIDE,
    Pooling,
    lowest,
    noise,
    settled_shift,
    standard,
    thinned,
)
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.intervals import Array

SURE_NS = 500.0  # if its error is smaller, an alignment is only searched for nearby
TRUSTED_NS = 2_000.0  # bursts with a larger error do not determine values, unless all have
COUNTERS = 24
ROUNDS, STILL_NS = 6, 25.0


def align_jointly(
    readings: Readings, parts: dict[int, Parts], alignments: dict[int, Alignment]
) -> dict[int, Alignment]:
    """Refine the alignments of bursts: the values of states that best fit all bursts decide each shift."""
    refined = dict(alignments)
    usable = [burst for burst, own in refined.items() if not (own.why or own.steady)]
    if len(usable) < 2:
        return refined
    model = _Model(readings, parts, usable)
    model.weigh({burst: refined[burst].shift_ns for burst in usable})
    for _ in range(ROUNDS):
        trusted = [b for b in usable if refined[b].error_ns <= TRUSTED_NS] or usable
        values = model.values({burst: refined[burst].shift_ns for burst in trusted})
        before = refined
        refined = refined | _with_mean_of({b: model.aligned(refined[b], values) for b in usable}, alignments)
        if max(abs(refined[b].shift_ns - before[b].shift_ns) for b in usable) < STILL_NS:
            break
    return refined


def _with_mean_of(joint: dict[int, Alignment], single: dict[int, Alignment]) -> dict[int, Alignment]:
    """Return the joint alignments, moved to the mean of the single ones.

    Without this, the values of the first and last parts of launches could absorb a shift common to all
    bursts.
    """
    weight = {burst: max(single[burst].error_ns, 1.0) ** -2 for burst in joint}
    total = sum(weight.values())
    by = sum(weight[b] * (single[b].shift_ns - own.shift_ns) for b, own in joint.items()) / total
    return {
        burst: own._replace(shift_ns=own.shift_ns + by, error_ns=float(np.hypot(own.error_ns, total**-0.5)))
        for burst, own in joint.items()
    }


class _Model:
    """Standardised values of the least noisy counters, explained by the states with the most time."""

    def __init__(self, readings: Readings, parts: dict[int, Parts], bursts: list[int]) -> None:
        mine = {burst: np.flatnonzero(readings.burst == burst) for burst in bursts}
        rows = {burst: own[thinned(len(own))] for burst, own in mine.items()}
        place = np.concatenate(list(rows.values()))
        scaled = standard(readings.only(place), COUNTERS)
        self.seen = np.split(scaled, np.cumsum([len(own) for own in rows.values()])[:-1])
        self.bursts = {burst: number for number, burst in enumerate(rows)}
        self.readings = [readings.only(own) for own in rows.values()]
        self.parts = [parts[burst] for burst in rows]
        times = np.sum([part.times for part in self.parts], axis=0)
        self.pooling = Pooling(self.parts[0], times, len(place), DIVIDED)
        self.interval = readings.interval_ns

    def weigh(self, shifts: dict[int, float]) -> None:
        """Weight counters by the precision with which states explain them at these shifts."""
        values = self.values(shifts)
        left = [self.seen[n] - self._design(n, shifts[burst]) @ values for burst, n in self.bursts.items()]
        scale = noise(np.concatenate(left))
        self.seen = [values / scale for values in self.seen]

    def values(self, shifts: dict[int, float]) -> Array:
        """Return the least-squares values of the states at these shifts by burst, columns x counters."""
        gram, right = self.pooling.ridge.copy(), 0.0
        for burst, shift in shifts.items():
            design = self._design(self.bursts[burst], shift)
            gram += design.T @ design
            right += design.T @ self.seen[self.bursts[burst]]
        return np.linalg.solve(gram, right)

    def aligned(self, alignment: Alignment, values: Array) -> Alignment:
        """Return the alignment of the burst that best fits the given values of states."""
        number = self.bursts[alignment.burst]

        def residuals(shift: float) -> Array:
            left = self.seen[number] - self._design(number, shift) @ values
            return (left**2).sum(axis=1)

        near, around = alignment.shift_ns, CLOSE
        if alignment.error_ns > SURE_NS:
            near, around = lowest(lambda s: residuals(s).sum(), near + WIDE * self.interval), NARROW
        shift, error, least = settled_shift(residuals, near + around * self.interval)
        total = float((self.seen[number] ** 2).sum())
        explained = 1 - least / total if total else 0.0
        return alignment._replace(shift_ns=shift, error_ns=error, explained=explained)

    def _design(self, number: int, shift: float) -> Array:
        return self.pooling.design(self.readings[number], self.parts[number], shift)
