"""Statistics that are robust against outliers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NORMAL = 1.4826  # turns a median deviation into the standard deviation of a normal distribution


def median(values: Sequence[float] | np.ndarray) -> float:
    """Return the median. Raises ValueError for no values."""
    if not len(values):
        raise ValueError("the median of no values")
    return float(np.median(values))


def mad(values: Sequence[float] | np.ndarray) -> float:
    """Return the median absolute deviation, scaled to a standard deviation. Raises ValueError for none."""
    return NORMAL * median(np.abs(np.asarray(values, float) - median(values)))


def midmean(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of the middle half: as robust as the median, but finer on a coarse clock.

    Raises ValueError for no values.
    """
    if not len(values):
        raise ValueError("the midmean of no values")
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())
