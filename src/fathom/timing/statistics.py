"""Robust statistics, and bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 2000
CHUNK = 250_000  # values drawn at once: few enough to stay in the CPU's cache
NORMAL = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


def interval(
    values: Sequence[float] | np.ndarray,
    statistic: Callable[..., np.ndarray] = np.median,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Return (low, high), the percentile bootstrap interval of `statistic`; None for fewer than two values.

    `statistic` is called on a matrix of resamples with axis=1. The result depends on values and `seed`.
    """
    sample = np.asarray(values, float)
    if len(sample) < 2:
        return None
    random = np.random.default_rng(seed)
    rows = max(1, CHUNK // len(sample))
    resampled: list[np.ndarray] = []
    for done in range(0, RESAMPLES, rows):
        count = min(rows, RESAMPLES - done)
        drawn = random.integers(0, len(sample), (count, len(sample)))
        exact = statistic is not np.median or np.isnan(sample).any()
        made = statistic(sample.take(drawn), axis=1) if exact else _medians(sample, drawn)
        resampled.append(np.asarray(made))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(resampled), [tail, 1 - tail])
    return float(low), float(high)


def _medians(sample: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return the median of each resample in `drawn` (indices into `sample`).

    Partitions the values' ranks as small integers, which takes half the time of partitioning floats.
    """
    order = np.argsort(sample, kind="stable")
    ranks = np.empty(len(sample), np.min_scalar_type(len(sample)))
    ranks[order] = np.arange(len(sample))
    middle = len(sample) // 2
    # One pivot: numpy is three times slower with two.
    parted = np.partition(ranks.take(drawn), middle, axis=1)
    upper = parted[:, middle]
    lower = upper if len(sample) % 2 else parted[:, :middle].max(axis=1)
    return sample[order].take(np.stack((lower, upper), axis=1)).mean(axis=1)


def median(values: Sequence[float] | np.ndarray) -> float:
    """Return the median. Raises ValueError for no values."""
    if not len(values):
        raise ValueError("the median of no values")
    return float(np.median(values))


def weighted_quantile(
    values: Sequence[float] | np.ndarray, weights: Sequence[float] | np.ndarray, share: float
) -> float:
    """Return the quantile of values counted `weights` times each. Raises ValueError without weights."""
    order = np.argsort(values, kind="stable")
    ordered, reached = np.asarray(values, float)[order], np.cumsum(np.asarray(weights, float)[order])
    if not len(reached) or reached[-1] <= 0:
        raise ValueError("a quantile needs at least one value")
    first, last = (np.searchsorted(reached, share * reached[-1], side) for side in ("left", "right"))
    return float(ordered[first] + ordered[min(last, len(ordered) - 1)]) / 2


def mad(values: Sequence[float] | np.ndarray) -> float:
    """Return the median absolute deviation, scaled to a standard deviation. Raises ValueError if empty."""
    return NORMAL * median(np.abs(np.asarray(values, float) - median(values)))


def midmean(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of the middle half: robust, yet finer than the median. Raises ValueError if empty."""
    if not len(values):
        raise ValueError("the midmean of no values")
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())
