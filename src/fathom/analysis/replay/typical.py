"""Constants of the machine, as this recording shows them: what a step takes besides work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fathom.analysis.intervals import Array

ENOUGH = 8  # samples before a kind has a constant of its own
USUAL = 4.0  # times the median: what is beyond has another cause


def usual_median(values: Array, fallback: float) -> float:
    """The median, for what does not add up over a step; `fallback` for none."""
    return float(np.median(values)) if len(values) else fallback


def typical(
    values: Array, keys: Array, width: int, fallback: float, usual: Callable[[Array, float], float]
) -> Array:
    """By key, 0 to `width` - 1: what is `usual` of its values; where there are few, of all."""
    whole = usual(values, fallback)
    mine = [values[keys == key] for key in range(width)]
    return np.array([usual(some, whole) if len(some) >= ENOUGH else whole for some in mine], float)


def usual_mean(values: Array, fallback: float) -> float:
    """The mean of the values up to some times their median; `fallback` for none."""
    if not len(values):
        return fallback
    return float(values[values <= max(USUAL * np.median(values), 1.0)].mean())
