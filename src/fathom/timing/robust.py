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
