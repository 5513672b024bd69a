"""Compare two programs timed in alternating blocks: the ratio of their times, its interval, a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from fathom.errors import BadInputError
from fathom.timing.statistics import RESAMPLES, midmean

CONFIDENCE = 0.99
LEAST_PAIRS = 5  # with fewer, the variation between processes is not known well enough
Blocks = Sequence[Sequence[float]]
Decision = Literal["faster", "slower", "same", "inconclusive"]
MARGIN = 0.01
SETTLED = 0.25  # largest half-width of an inconclusive interval, as a fraction of the margin
SHARE = 0.1  # largest half-width of an interval, as a fraction of the gain or loss


@dataclass(frozen=True)
class Ratio:
    """The candidate's time over the baseline's, from `low` to `high`, None below LEAST_PAIRS pairs."""

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
    """Return the ratio of the candidate's time to the baseline's over paired blocks; None without a pair.

    A block is the list of samples of one process; the k-th blocks of both sides ran next to each other. The
    ratio is the geometric mean, over pairs, of the ratio of `statistic` of the two blocks.

    The interval is a percentile bootstrap over pairs. The samples within a block are not resampled, because
    the variation between blocks already contains theirs (Davison and Hinkley, Bootstrap Methods and their
    Application, 1997, section 3.8). Its percentiles are widened for few pairs (Hesterberg, What Teachers
    Should Know About the Bootstrap, 2015, section 3.2).

    Other load may slow a few pairs up to a hundredfold. The percentiles of few pairs then end at the smallest
    of the other pairs, which may all lie on one side of 1 by chance. So if a sign test does not confirm the
    side, the interval is extended to Student's interval, whose width grows with the variation of the pairs.
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
    """Return the p-value of the two-sided sign test on `logs`."""
    fewer = min(int((logs > 0).sum()), int((logs < 0).sum()))
    return min(1.0, 2 * sum(comb(len(logs), count) for count in range(fewer + 1)) / 2 ** len(logs))


def widened_tail(tail: float, n: int) -> float:
    """Return the tail probability that makes a percentile interval of `n` values as wide as Student's t."""
    return NormalDist().cdf(-sqrt(n / (n - 1)) * student(1 - tail, n - 1))


def student(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t with `freedom` degrees of freedom, to 2 % from 4 degrees on.

    Uses the approximation 26.7.5 of Abramowitz and Stegun.
    """
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / freedom + second / freedom**2 + third / freedom**3 + fourth / freedom**4


def require_margin(margin: float) -> None:
    """Raise BadInputError unless `margin` is a share between 0 and 0.5."""
    if not 0 < margin < 0.5:
        raise BadInputError(f"The margin is {margin:g}; give one between 0 and 0.5.")


def decide(ratio: Ratio | None, margin: float = MARGIN) -> Decision:
    """Return the decision for a ratio.

    It is `same` if the whole interval is within 1 ± margin, `faster` if all of it is below, `slower` if all
    of it is above, and otherwise, or without an interval, `inconclusive`.
    """
    if ratio is None or ratio.low is None or ratio.high is None:
        return "inconclusive"
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "same"
    if ratio.high < 1 - margin:
        return "faster"
    return "slower" if ratio.low > 1 + margin else "inconclusive"


def settled(ratio: Ratio | None, margin: float = MARGIN) -> bool:
    """Return whether the interval is narrow enough to stop measuring.

    Its half-width may be at most half the margin or a tenth of the gain or loss, whichever is larger. For an
    inconclusive decision it may be at most a quarter of the margin.
    """
    if ratio is None or ratio.low is None or ratio.high is None:
        return False
    half = (ratio.high - ratio.low) / 2
    if decide(ratio, margin) == "inconclusive":
        return half <= margin * SETTLED
    return half <= max(margin / 2, SHARE * abs(1 - ratio.value))
