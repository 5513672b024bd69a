"""Constants of the machine, as this recording shows them: what a step takes besides work."""

from __future__ import annotations

import numpy as np

from fathom.analysis.intervals import Array

ENOUGH = 8  # samples before a kind has a constant of its own
USUAL = 4.0  # times the median: what is beyond has another cause


def typical(values: Array, keys: Array, fallback: float) -> Array:
    """By key (small integers, 0 to the largest): the mean of values that are not far above their median."""
    width = int(keys.max(initial=-1)) + 1
    whole = usual_mean(values, fallback)
    return np.array([_of(values[keys == key], whole) for key in range(width)], float)


def usual_mean(values: Array, fallback: float) -> float:
    """The mean of the values up to some times their median; `fallback` for none."""
    if not len(values):
        return fallback
    return float(values[values <= max(USUAL * np.median(values), 1.0)].mean())


def _of(values: Array, whole: float) -> float:
    return usual_mean(values, whole) if len(values) >= ENOUGH else whole
