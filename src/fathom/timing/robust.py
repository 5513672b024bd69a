"""Statistics that a few wild timings do not move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NORMAL = 1.4826  # turns a median deviation into the standard deviation of a normal distribution


def median(values: Sequence[float] | np.ndarray) -> float:
    """The middle value. Raises ValueError for none."""
    if not len(values):
        raise ValueError("the median of nothing")
    return float(np.median(values))


def mad(values: Sequence[float] | np.ndarray) -> float:
    """Median absolute deviation, scaled to a standard deviation. Raises ValueError for none."""
    return NORMAL * median(np.abs(np.asarray(values, float) - median(values)))


def midmean(values: Sequence[float] | np.ndarray) -> float:
    """Mean of the middle half: as deaf to wild values as the median, and finer where a clock is coarse.

    Raises ValueError for none.
    """
    if not len(values):
        raise ValueError("the middle of nothing")
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())
