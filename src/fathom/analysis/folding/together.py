"""Bursts of one group aligned by what the others showed.

Alone, a burst in which little ran is explained by almost any shift, since every part of a state may take the
value that suits it best. All bursts share these values: with them given, few samples tell the shift.
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
    some,
    standard,
)
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.intervals import Array

SURE_NS = 500.0  # an alignment with a smaller error is not looked for far away
TRUSTED_NS = 2_000.0  # and one with a larger one does not tell values, where others do
COUNTERS = 24
ROUNDS, STILL_NS = 6, 25.0


def together(
    readings: Readings, parts: dict[int, Parts], alignments: dict[int, Alignment]
) -> dict[int, Alignment]:
    """The alignments at which values that are the same in all bursts fit each of them best."""
    found = dict(alignments)
    sound = [burst for burst, one in found.items() if not (one.why or one.steady)]
    if len(sound) < 2:
        return found
    model = _Model(readings, parts, sound)
    model.weigh({burst: found[burst].shift_ns for burst in sound})
    for _ in range(ROUNDS):
        telling = [b for b in sound if found[b].error_ns <= TRUSTED_NS] or sound
        values = model.values({burst: found[burst].shift_ns for burst in telling})
        before = found
        found = found | _kept({b: model.aligned(found[b], values) for b in sound}, alignments)
        if max(abs(found[b].shift_ns - before[b].shift_ns) for b in sound) < STILL_NS:
            break
    return found


def _kept(found: dict[int, Alignment], alone: dict[int, Alignment]) -> dict[int, Alignment]:
    """The alignments, with the mean of bursts alone, which beginnings and ends of launches could absorb."""
    weight = {burst: max(alone[burst].error_ns, 1.0) ** -2 for burst in found}
    whole = sum(weight.values())
    by = sum(weight[b] * (alone[b].shift_ns - one.shift_ns) for b, one in found.items()) / whole
    return {
        burst: one._replace(shift_ns=one.shift_ns + by, error_ns=float(np.hypot(one.error_ns, whole**-0.5)))
        for burst, one in found.items()
    }


class _Model:
    """Standardised values of the counters that tell most, and the states that hold most time."""

    def __init__(self, readings: Readings, parts: dict[int, Parts], bursts: list[int]) -> None:
        mine = {burst: np.flatnonzero(readings.burst == burst) for burst in bursts}
        rows = {burst: own[some(len(own))] for burst, own in mine.items()}
        place = np.concatenate(list(rows.values()))
        scaled = standard(readings.only(place), COUNTERS)
        self.seen = np.split(scaled, np.cumsum([len(own) for own in rows.values()])[:-1])
        self.bursts = {burst: number for number, burst in enumerate(rows)}
        self.readings = [readings.only(own) for own in rows.values()]
        self.parts = [parts[burst] for burst in rows]
        times = np.sum([one.times for one in self.parts], axis=0)
        self.pooling = Pooling(self.parts[0], times, len(place), DIVIDED)
        self.interval = readings.interval_ns

    def weigh(self, shifts: dict[int, float]) -> None:
        """Let counters weigh as much as states explain them at these shifts."""
        values = self.values(shifts)
        left = [self.seen[n] - self._design(n, shifts[burst]) @ values for burst, n in self.bursts.items()]
        scale = noise(np.concatenate(left))
        self.seen = [one / scale for one in self.seen]

    def values(self, shifts: dict[int, float]) -> Array:
        """The least-squares values of the states, columns x counters, with bursts moved so."""
        gram, right = self.pooling.ridge.copy(), 0.0
        for burst, shift in shifts.items():
            design = self._design(self.bursts[burst], shift)
            gram += design.T @ design
            right += design.T @ self.seen[self.bursts[burst]]
        return np.linalg.solve(gram, right)

    def aligned(self, alignment: Alignment, values: Array) -> Alignment:
        """The burst's alignment where states have these values."""
        number = self.bursts[alignment.burst]

        def residuals(shift: float) -> Array:
            left = self.seen[number] - self._design(number, shift) @ values
            return (left**2).sum(axis=1)

        near, around = alignment.shift_ns, CLOSE
        if alignment.error_ns > SURE_NS:
            near, around = lowest(lambda s: residuals(s).sum(), near + WIDE * self.interval), NARROW
        shift, error, least = settled_shift(residuals, near + around * self.interval)
        whole = float((self.seen[number] ** 2).sum())
        explained = 1 - least / whole if whole else 0.0
        return alignment._replace(shift_ns=shift, error_ns=error, explained=explained)

    def _design(self, number: int, shift: float) -> Array:
        return self.pooling.design(self.readings[number], self.parts[number], shift)
