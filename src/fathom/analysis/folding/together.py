"""Bursts of one group aligned by what the others showed.

Alone, a burst in which little ran is explained by almost any shift, since every state may take the value that
suits it best. All bursts share the values of their states: with these given, few samples tell the shift.
"""

from __future__ import annotations

import numpy as np

from fathom.analysis.folding.parts import Parts
from fathom.analysis.folding.profile import (
    DIVIDED,
    NARROW,
    WIDE,
    Pooling,
    lowest,
    settled_shift,
    some,
    standard,
)
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.intervals import Array

SURE_NS = 500.0  # an alignment with a smaller error stays as it is
TRUSTED_NS = 2_000.0  # and one with a larger one does not tell values, where others do
COUNTERS = 24
ROUNDS, STILL_NS = 6, 25.0


def together(
    readings: Readings, states: dict[int, Parts], alignments: dict[int, Alignment]
) -> dict[int, Alignment]:
    """The alignments, those that were unsure decided by values that fit all bursts."""
    found = dict(alignments)
    sound = [burst for burst, one in found.items() if not one.why]
    unsure = [burst for burst in sound if found[burst].error_ns > SURE_NS]
    if len(sound) < 2 or not unsure:
        return found
    model = _Model(readings, states, sound)
    for _ in range(ROUNDS):
        telling = [b for b in sound if found[b].error_ns <= TRUSTED_NS] or sound
        values = model.values({burst: found[burst].shift_ns for burst in telling})
        before = [found[burst].shift_ns for burst in unsure]
        for burst in unsure:
            found[burst] = model.aligned(found[burst], values)
        moved = np.abs(np.subtract(before, [found[burst].shift_ns for burst in unsure]))
        if moved.max() < STILL_NS:
            break
    return found


class _Model:
    """Standardised values of the counters that tell most, and the states that hold most time."""

    def __init__(self, readings: Readings, states: dict[int, Parts], bursts: list[int]) -> None:
        mine = {burst: np.flatnonzero(readings.burst == burst) for burst in bursts}
        rows = {burst: own[some(len(own))] for burst, own in mine.items()}
        place = np.concatenate(list(rows.values()))
        scaled = standard(readings.only(place), COUNTERS)
        self.seen = np.split(scaled, np.cumsum([len(own) for own in rows.values()])[:-1])
        self.bursts = {burst: number for number, burst in enumerate(rows)}
        self.readings = [readings.only(own) for own in rows.values()]
        self.states = [states[burst] for burst in rows]
        times = np.sum([one.times for one in self.states], axis=0)
        self.pooling = Pooling(self.states[0], times, len(place), DIVIDED)
        self.interval = readings.interval_ns

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

        near = lowest(residuals, alignment.shift_ns + WIDE * self.interval)
        shift, error, least = settled_shift(residuals, near + NARROW * self.interval)
        whole = float((self.seen[number] ** 2).sum())
        explained = 1 - least / whole if whole else 0.0
        return alignment._replace(shift_ns=shift, error_ns=error, explained=explained)

    def _design(self, number: int, shift: float) -> Array:
        return self.pooling.design(self.readings[number], self.states[number], shift)
