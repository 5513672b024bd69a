"""Constants of the machine, estimated from this recording, for example launch latencies and gaps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fathom.analysis.intervals import Array

ENOUGH = 8  # fewest values for which a key gets a separate constant
USUAL = 4.0  # times the median: larger values have another cause


def usual_median(values: Array, fallback: float) -> float:
    """Return the median, for durations that do not add up over a step; `fallback` without values."""
    return float(np.median(values)) if len(values) else fallback


def typical(
    values: Array, keys: Array, width: int, fallback: float, usual: Callable[[Array, float], float]
) -> Array:
    """Return `usual` of the values of each key, 0 to `width` - 1; of all values for keys with too few."""
    overall = usual(values, fallback)
    groups = [values[keys == key] for key in range(width)]
    return np.array([usual(own, overall) if len(own) >= ENOUGH else overall for own in groups], float)


def usual_mean(values: Array, fallback: float) -> float:
    """Return the mean of the values up to USUAL times their median; `fallback` without values."""
    if not len(values):
        return fallback
    return float(values[values <= max(USUAL * np.median(values), 1.0)].mean())
