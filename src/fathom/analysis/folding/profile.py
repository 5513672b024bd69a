"""How well a mixture of states explains a stretch of samples, as a function of the clocks' shift."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.states import States, shares
from fathom.analysis.intervals import Array

BLOCKS, RESAMPLES = 50, 200
MOST = 4000  # samples that decide the shift: more make its error no smaller than the model's own
COLUMNS, COUNTERS = 64, 8
WIDE, NARROW = np.linspace(-2.0, 2.0, 17), np.linspace(-0.5, 0.5, 17)  # of an interval


class Pooling:
    """The states that hold most time, a column each; all others share the last."""

    def __init__(self, times: Array, samples: int, columns: int) -> None:
        largest = np.argsort(-times, kind="stable")[: min(columns, max(samples // 20, 2))]
        self.columns = len(largest) + 1
        self._into = np.full(len(times), len(largest))
        self._into[largest] = np.arange(len(largest))

    def design(self, readings: Readings, states: States, shift: float) -> Array:
        """Samples x columns: which part of each sample the device spent in each, at that shift."""
        by = round(float(shift))
        found = shares(states, readings.starts + by, readings.ends + by)
        return found.pooled(self._into, self.columns).dense(0, found.rows)


class Mixture:
    """Samples of the counters that vary most, and the states that hold most time.

    Other states share one column: to tell where the samples lie, the large ones do.
    """

    def __init__(self, readings: Readings, states: States, columns: int, counters: int) -> None:
        self.readings, self.states = readings, states
        self.values = standard(readings.values, counters)
        self._pooling = Pooling(states.times, len(readings.starts), columns)

    def residuals(self, shift: float) -> Array:
        """Squared residuals by sample, summed over counters, of the least-squares fit at that shift."""
        design = self._pooling.design(self.readings, self.states, shift)
        gram = design.T @ design + 1e-6 * np.eye(self._pooling.columns)
        left = self.values - design @ np.linalg.solve(gram, design.T @ self.values)
        return (left**2).sum(axis=1)

    def explained(self, shifts: Array) -> Array:
        """Share of the variance that the mixture explains, at each shift."""
        whole = (self.values**2).sum()
        if whole == 0:
            return np.zeros(len(shifts))
        return np.array([1 - self.residuals(shift).sum() / whole for shift in shifts])


def standard(values: Array, most: int) -> Array:
    """At most so many counters without gaps, those with the least noise, each with mean 0 and variance 1."""
    whole = np.flatnonzero(np.isfinite(values).all(axis=0))
    chosen = values[:, whole]
    spread = chosen.std(axis=0)
    chosen, spread = chosen[:, spread > 0], spread[spread > 0]
    if not chosen.shape[1]:
        return np.zeros((len(values), 1))
    scaled = (chosen - chosen.mean(axis=0)) / spread
    smooth = (scaled[1:] * scaled[:-1]).mean(axis=0)  # noise has none of a neighbour's value
    return scaled[:, np.argsort(-smooth, kind="stable")[:most]]


def precise(
    readings: Readings, states: States, near: float, *, widely: bool = True
) -> tuple[float, float, float]:
    """The shift within two intervals of `near`, its standard error, both ns, and the variance explained.

    Not `widely`: within half an interval.
    """
    mixture = Mixture(readings.only(some(len(readings.starts))), states, COLUMNS, COUNTERS)
    interval = readings.interval_ns
    if widely:
        near = lowest(mixture.residuals, near + WIDE * interval)
    best, error, least = settled_shift(mixture.residuals, near + NARROW * interval)
    whole = float((mixture.values**2).sum())
    return best, error, 1 - least / whole if whole else 0.0


def settled_shift(residuals: Callable[[float], Array], shifts: Array) -> tuple[float, float, float]:
    """The shift that leaves least, its standard error (a block bootstrap's), and what is left."""
    profile = np.array([residuals(shift) for shift in shifts])
    blocks = np.array([part.sum(axis=1) for part in np.array_split(profile, BLOCKS, axis=1)])
    best = _vertex(shifts, blocks.sum(axis=0))
    drawn = np.random.default_rng(0).integers(0, len(blocks), (RESAMPLES, len(blocks)))
    error = float(np.std([_vertex(shifts, blocks[rows].sum(axis=0)) for rows in drawn]))
    return best, error, float(blocks.sum(axis=0).min())


def lowest(residuals: Callable[[float], Array], shifts: Array) -> float:
    """The shift, of these, that leaves least."""
    return float(shifts[np.argmin([residuals(shift).sum() for shift in shifts])])


def some(count: int) -> Array:
    """MOST of so many rows at most, in order."""
    return np.linspace(0, count, min(count, MOST), endpoint=False, dtype=int)


def _vertex(shifts: Array, cost: Array) -> float:
    """The lowest point of the parabola through the neighbourhood of the smallest cost."""
    best = int(np.argmin(cost))
    near = slice(max(best - 3, 0), best + 4)
    middle = shifts[best]
    curve, slope, _ = np.polyfit(shifts[near] - middle, cost[near], 2)
    if curve <= 0:
        return float(middle)
    reach = shifts[-1] - shifts[0]
    return float(middle + np.clip(-slope / (2 * curve), -reach / 8, reach / 8))
