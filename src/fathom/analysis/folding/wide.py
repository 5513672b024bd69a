"""The correlation of activity with busy time at very many shifts at once, by fast Fourier transforms."""

from __future__ import annotations

import numpy as np

from fathom.analysis.intervals import Array, Spans, covered

MOST_STEPS = 1 << 21  # half intervals: a longer search or burst is no burst's
LEAST = 0.5  # of the samples that count at all, which must do so at a shift
SMALL = 1e-9  # of the largest variance there can be: rounding of the transforms


def wide_scores(
    spans: Spans, starts: Array, interval: float, active: Array, shifts: Array, since: int = 0
) -> Array:
    """Squared correlation of `active` with the busy share, 0 where it is negative, at each shift.

    `spans` are when kernels ran; `starts` when samples began, each `interval` long, in ns; `active` has a
    value a sample. `shifts` are equidistant, by half an interval; samples are placed on that grid. Those
    that begin before `since`, in kernels' time, don't count.
    """
    step, scale = interval / 2, float(np.abs(active).max())
    place = np.rint((starts - starts[0]) / step).astype(np.int64)
    if place[-1] + len(shifts) > MOST_STEPS:
        return np.zeros(len(shifts))
    begins = starts[0] + np.rint(shifts[0] + step * np.arange(place[-1] + len(shifts))).astype(np.int64)
    counts = (begins >= since).astype(float)
    busy = counts * covered(spans, begins, begins + round(interval)) / interval
    there, own, squared = (
        np.bincount(place, weights, place[-1] + 1)
        for weights in (np.ones(len(active)), active / scale, (active / scale) ** 2)
    )
    number = np.rint(_sliding(there, counts))
    sums = (_sliding(own, counts), _sliding(there, busy), _sliding(own, busy))
    squares = (_sliding(squared, counts), _sliding(there, busy**2))
    return np.where(number >= max(LEAST * number.max(), 1), _squared(number, sums, squares), 0.0)


def _squared(number: Array, sums: tuple[Array, Array, Array], squares: tuple[Array, Array]) -> Array:
    """The squared correlation from sums of x, y and xy, and of x² and y²."""
    number = np.maximum(number, 1)
    x, y, both = sums
    spread_x, spread_y = squares[0] - x**2 / number, squares[1] - y**2 / number
    varies = (spread_x > SMALL * number) & (spread_y > SMALL * number)
    together = np.clip(both - x * y / number, 0.0, None) ** 2
    return np.divide(together, spread_x * spread_y, out=np.zeros(len(number)), where=varies)


def _sliding(weights: Array, over: Array) -> Array:
    """The sum of `weights` times `over`, moved against each other by 0, 1, … steps."""
    size = len(weights) + len(over)
    product = np.conj(np.fft.rfft(weights, size)) * np.fft.rfft(over, size)
    return np.fft.irfft(product, size)[: len(over) - len(weights) + 1]
