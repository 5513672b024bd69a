"""The fit of a mixture of states to samples, as a function of the shift between their clocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.folding.fit import level_ridge
from fathom.analysis.folding.kinds import informative
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.shares import dense_shares
from fathom.analysis.folding.states import States
from fathom.analysis.intervals import Array

BLOCKS, RESAMPLES = 50, 200
MOST = 2000  # most samples that determine the shift: with more, the error of the model dominates
COLUMNS, COUNTERS = 64, 24
DIVIDED = 160  # most columns if states are divided into parts
WIDE, NARROW = np.linspace(-2.0, 2.0, 17), np.linspace(-0.5, 0.5, 17)  # in sample intervals
CLOSE = np.linspace(-0.2, 0.2, 13)
NEAR = 3  # shifts on either side of the lowest, for the fit of a parabola
LEAST_NOISE = 1e-4  # least noise, as a share of a counter's variance
NEVER = 1e-6  # keeps columns that do not occur from making the normal matrix singular


class Pooling:
    """Columns of a design: one for each part of the states with the most time, one for all others."""

    def __init__(self, states: States, times: Array, samples: int, columns: int) -> None:
        most = min(columns, max(samples // 20, 2))
        kept = _largest(states.owner, times, most)
        self.columns = len(kept) + 1
        self._into = np.full(len(times), len(kept))
        self._into[kept] = np.arange(len(kept))
        self.ridge = NEVER * np.eye(self.columns) + level_ridge(states.level, self._into, self.columns)

    def design(self, readings: Readings, states: States, shift: float) -> Array:
        """Return the share of each sample that the device spent in each column, samples x columns."""
        by = round(float(shift))
        return dense_shares(states, readings.starts + by, readings.ends + by, self._into, self.columns)


def _largest(owner: Array, times: Array, most: int) -> Array:
    """Return at most `most` parts: those of the states with the most time."""
    time = np.bincount(owner, times)
    count = np.bincount(owner, times > 0)
    order = np.argsort(-time, kind="stable")
    fits = np.cumsum(count[order]) <= most
    fits[0] = True
    return np.flatnonzero(np.isin(owner, order[fits]) & (times > 0))


class Mixture:
    """A least-squares model of samples: the least noisy counters, explained by the states with the most time.

    Other states share one column, because the large ones suffice to locate the samples. With a shift `near`,
    counters are weighted by how precisely states explain them there: this is maximum likelihood if their
    noise differs.
    """

    def __init__(
        self, readings: Readings, states: States, columns: int, counters: int, near: float | None = None
    ) -> None:
        self.readings, self.states = readings, states
        self.values = standard(readings, counters)
        self._pooling = Pooling(states, states.times, len(readings.starts), columns)
        if near is not None:
            self.values = self.values / noise(self._left(near))
        self._total = float((self.values**2).sum())

    def residuals(self, shift: float) -> Array:
        """Return the squared residuals of the fit at that shift by sample, summed over counters."""
        return (self._left(shift) ** 2).sum(axis=1)

    def residual(self, shift: float) -> float:
        """Return the sum of the squared residuals at that shift."""
        _, solved, right = self._solved(shift)
        return self._total - float((solved * (right + self._pooling.ridge @ solved)).sum())

    def _left(self, shift: float) -> Array:
        design, solved, _ = self._solved(shift)
        return self.values - design @ solved

    def _solved(self, shift: float) -> tuple[Array, Array, Array]:
        """Return the design at that shift, the least-squares values, and their right-hand sides."""
        design = self._pooling.design(self.readings, self.states, shift)
        right = design.T @ self.values
        return design, np.linalg.solve(design.T @ design + self._pooling.ridge, right), right

    def explained(self, shifts: Array) -> Array:
        """Return the share of the variance that the mixture explains at each shift."""
        if self._total == 0:
            return np.zeros(len(shifts))
        return np.array([1 - self.residual(shift) / self._total for shift in shifts])


def noise(left: Array) -> Array:
    """Return the root mean square of each counter's residuals."""
    return np.sqrt(np.maximum((left**2).mean(axis=0), LEAST_NOISE))


def standard(readings: Readings, most: int) -> Array:
    """Return samples x the `most` least noisy counters without gaps, scaled to mean 0 and variance 1.

    Counters of multiprocessors are preferred, because only these show when the blocks of a kernel run.
    """
    places = informative(readings.names)
    values = readings.values[:, places] if places else readings.values
    complete = np.flatnonzero(np.isfinite(values).all(axis=0))
    chosen = values[:, complete]
    spread = chosen.std(axis=0)
    chosen, spread = chosen[:, spread > 0], spread[spread > 0]
    if not chosen.shape[1]:
        return np.zeros((len(values), 1))
    scaled = (chosen - chosen.mean(axis=0)) / spread
    smooth = (scaled[1:] * scaled[:-1]).mean(axis=0)  # noise is independent between neighbouring samples
    return scaled[:, np.argsort(-smooth, kind="stable")[:most]]


def precise(
    readings: Readings, states: States, near: float, *, widely: bool = True
) -> tuple[float, float, float]:
    """Return the best shift near `near` and its standard error in ns, and the share of variance explained.

    The search covers two sample intervals on either side, or half an interval unless `widely`.
    """
    few = readings.only(thinned(len(readings.starts)))
    if widely:
        near = lowest(Mixture(few, states, COLUMNS, COUNTERS).residual, near + WIDE * readings.interval_ns)
    mixture = Mixture(few, states, COLUMNS, COUNTERS, near)
    best, error, least = settled_shift(mixture.residuals, near + NARROW * readings.interval_ns)
    total = float((mixture.values**2).sum())
    return best, error, 1 - least / total if total else 0.0


def settled_shift(residuals: Callable[[float], Array], shifts: Array) -> tuple[float, float, float]:
    """Return the shift with the smallest residual, its standard error (block bootstrap), and that residual.

    `shifts` are equidistant. Shifts far from the lowest are not evaluated, because they cannot win.
    """
    blocks: dict[int, Array] = {}
    first, last = len(shifts) // 2 - NEAR, len(shifts) // 2 + NEAR
    low = high = -1
    while (first, last) != (low, high):
        low, high = max(first, 0), min(last, len(shifts) - 1)
        blocks |= {n: _blocks(residuals(shifts[n])) for n in range(low, high + 1) if n not in blocks}
        costs = _drawn(np.array([blocks[n] for n in range(low, high + 1)]))
        lowest = low + costs.argmin(axis=1)
        first = max(min(low, int(lowest.min()) - NEAR), 0)
        last = min(max(high, int(lowest.max()) + NEAR), len(shifts) - 1)
    best, *others = _vertices(shifts[low : high + 1], costs, lowest - low, float(np.ptp(shifts)))
    return float(best), float(np.std(others)), float(costs[0].min())


def _blocks(left: Array) -> Array:
    """Return the residuals summed over blocks of neighbouring samples."""
    return np.add.reduceat(left, np.linspace(0, len(left), BLOCKS, endpoint=False).astype(int))


def _drawn(profile: Array) -> Array:
    """Return the cost at each shift (columns), first of all blocks, then of blocks drawn with replacement."""
    drawn = np.random.default_rng(0).integers(0, BLOCKS, (RESAMPLES, BLOCKS))
    return np.vstack((profile.sum(axis=1), profile[:, drawn].sum(axis=2).T))


def lowest(residual: Callable[[float], float], shifts: Array) -> float:
    """Return the shift with the least residual: the best of every second one, refined by its neighbours."""
    residuals = {n: residual(shifts[n]) for n in range(0, len(shifts), 2)}
    best = min(residuals, key=lambda n: residuals[n])
    residuals |= {n: residual(shifts[n]) for n in (best - 1, best + 1) if 0 <= n < len(shifts)}
    return float(shifts[min(residuals, key=lambda n: residuals[n])])


def thinned(count: int) -> Array:
    """Return the indices of at most MOST of `count` rows, evenly spaced."""
    return np.linspace(0, count, min(count, MOST), endpoint=False, dtype=int)


def _vertices(shifts: Array, costs: Array, lowest: Array, reach: float) -> Array:
    """Return the minimum of a parabola around the lowest shift, for each row of costs."""
    minima = shifts[lowest].astype(float)
    for place in distinct(lowest):
        near, mine = slice(max(place - NEAR, 0), place + NEAR + 1), np.flatnonzero(lowest == place)
        curve, slope, _ = np.polyfit(shifts[near] - shifts[place], costs[mine, near].T, 2)
        bowl = curve > 0
        by = -slope[bowl] / (2 * curve[bowl])
        minima[mine[bowl]] += np.clip(by, -reach / 8, reach / 8)
    return minima
