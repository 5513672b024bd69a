"""Bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 2000
CHUNK = 1_000_000  # values drawn at once, to bound memory for any length of recording


def interval(
    values: Sequence[float] | np.ndarray,
    statistic: Callable[..., np.ndarray] = np.median,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Return the percentile bootstrap interval of `statistic` (called with axis=1); None for one value.

    Deterministic for the same values and seed.
    """
    sample = np.asarray(values, float)
    if len(sample) < 2:
        return None
    random = np.random.default_rng(seed)
    rows = max(1, CHUNK // len(sample))
    resampled: list[np.ndarray] = []
    for done in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - done)
        drawn = sample[random.integers(0, len(sample), (count, len(sample)))]
        resampled.append(np.asarray(statistic(drawn, axis=1)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(resampled), [tail, 1 - tail])
    return float(low), float(high)
