"""The correlation of activity with busy time at very many shifts at once, by fast Fourier transforms."""

from __future__ import annotations

import numpy as np

from fathom.analysis.intervals import Array, Spans, covered

MOST_STEPS = 1 << 21  # half intervals: a longer search or burst is no burst's
SMALL = 1e-9  # of the largest variance there can be: rounding of the transforms


def wide_scores(spans: Spans, starts: Array, interval: float, active: Array, shifts: Array) -> Array:
    """Squared correlation of `active` with the busy share, 0 where it is negative, at each shift.

    `spans` are when kernels ran; `starts` when samples began, each `interval` long, in ns; `active` has a
    value a sample. `shifts` are equidistant, by half an interval; samples are placed on that grid.
    """
    step = interval / 2
    place = np.rint((starts - starts[0]) / step).astype(np.int64)
    count = len(shifts)
    if place[-1] + count > MOST_STEPS:
        return np.zeros(count)
    begins = np.rint(starts[0] + shifts[0] + step * np.arange(place[-1] + count)).astype(np.int64)
    busy = covered(spans, begins, begins + round(interval)) / interval
    there = np.bincount(place, minlength=place[-1] + 1).astype(float)
    centred = np.bincount(place, active - active.mean(), place[-1] + 1)
    own = float(((active - active.mean()) ** 2).sum())
    return _squared(_sliding(centred, busy), _spread(there, busy, len(active)), own)


def _spread(there: Array, busy: Array, samples: int) -> Array:
    """The sum of squared deviations of the busy share over the samples, at each shift."""
    found = _sliding(there, busy**2) - _sliding(there, busy) ** 2 / samples
    return np.where(found > SMALL * samples, found, np.inf)


def _squared(together: Array, spread: Array, own: float) -> Array:
    return np.clip(together, 0.0, None) ** 2 / (spread * own) if own > 0 else np.zeros(len(together))


def _sliding(weights: Array, over: Array) -> Array:
    """The sum of `weights` times `over`, moved against each other by 0, 1, … steps."""
    size = len(weights) + len(over)
    product = np.conj(np.fft.rfft(weights, size)) * np.fft.rfft(over, size)
    return np.fft.irfft(product, size)[: len(over) - len(weights) + 1]
