"""Compare two sides timed in alternating blocks: a ratio with its interval, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from fathom.timing.statistics import RESAMPLES, midmean

CONFIDENCE = 0.99
LEAST_PAIRS = 5  # fewer blocks say too little about how processes differ
Blocks = Sequence[Sequence[float]]
Decision = Literal["faster", "slower", "same", "ambiguous"]
MARGIN = 0.01
SETTLED = 0.25  # of the margin: how narrow an ambiguous interval must become
SHARE = 0.1  # of a gain: how wide its interval may be to either side


@dataclass(frozen=True)
class Ratio:
    """Candidate's time over baseline's; `low` to `high` is its interval, None for fewer than 5 pairs."""

    value: float
    low: float | None
    high: float | None
    pairs: int


def compare(
    baseline: Blocks,
    candidate: Blocks,
    *,
    confidence: float = CONFIDENCE,
    statistic: Callable[[Sequence[float]], float] = midmean,
    seed: int = 0,
) -> Ratio | None:
    """Return the ratio of paired blocks; None without a pair.

    Each block holds the samples of one process; the k-th blocks of both sides ran next to each other. A block
    counts by its `statistic`, a pair by the logarithm of its ratio, the result by the mean over pairs. Pairs
    are resampled with replacement, but not the samples within them: this keeps the scatter between processes
    in the interval without counting the scatter within them twice (Davison and Hinkley, Bootstrap Methods and
    their Application, 1997, section 3.8). Percentiles are widened for few pairs (Hesterberg, What Teachers
    Should Know About the Bootstrap, 2015, section 3.2). If other load slows single pairs of few, up to a
    hundredfold, percentiles end at the smallest of the others, and these lie on one side of
    zero by chance. So if too few pairs agree on the side for a sign test, the interval reaches as far
    as Student's, whose width grows with the scatter of pairs.
    """
    usable = [(a, b) for a, b in zip(baseline, candidate, strict=False) if len(a) and len(b)]
    if not usable:
        return None
    logs = np.array([np.log(statistic(b)) - np.log(statistic(a)) for a, b in usable])
    mean, pairs = logs.mean(), len(logs)
    value = float(np.exp(mean))
    if pairs < LEAST_PAIRS:
        return Ratio(value, None, None, pairs)
    drawn = np.random.default_rng(seed).integers(0, pairs, (RESAMPLES, pairs))
    tail = widened_tail((1 - confidence) / 2, pairs)
    low, high = np.quantile(logs[drawn].mean(axis=1), [tail, 1 - tail])
    if not low <= 0 <= high and by_chance(logs) > 1 - confidence:
        reach = student((1 + confidence) / 2, pairs - 1) * logs.std(ddof=1) / sqrt(pairs)
        low, high = min(low, mean - reach), max(high, mean + reach)
    return Ratio(value, float(np.exp(low)), float(np.exp(high)), pairs)


def by_chance(logs: np.ndarray) -> float:
    """Return the probability of at least this many equal signs if both were equally likely: the sign test."""
    fewer = min(int((logs > 0).sum()), int((logs < 0).sum()))
    return min(1.0, 2 * sum(comb(len(logs), count) for count in range(fewer + 1)) / 2 ** len(logs))


def widened_tail(tail: float, n: int) -> float:
    """Return the tail at which a percentile interval of `n` values covers as much as Student's t."""
    return NormalDist().cdf(-sqrt(n / (n - 1)) * student(1 - tail, n - 1))


def student(probability: float, freedom: int) -> float:
    """Approximate a quantile of Student's t (Abramowitz and Stegun 26.7.5), within 2 % from 4 degrees on."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / freedom + second / freedom**2 + third / freedom**3 + fourth / freedom**4


def decide(ratio: Ratio | None, margin: float = MARGIN) -> Decision:
    """Return `same` if the whole interval is within 1 ± margin, `faster` or `slower` if all of it is beyond,
    else `ambiguous`."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return "ambiguous"
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "same"
    if ratio.high < 1 - margin:
        return "faster"
    return "slower" if ratio.low > 1 + margin else "ambiguous"


def settled(ratio: Ratio | None, margin: float = MARGIN) -> bool:
    """Whether the interval is narrow enough for the decision: to either side at most half the margin
    or a tenth of the gain or loss; a quarter of the margin if it is still ambiguous."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return False
    half = (ratio.high - ratio.low) / 2
    if decide(ratio, margin) == "ambiguous":
        return half <= margin * SETTLED
    return half <= max(margin / 2, SHARE * abs(1 - ratio.value))
