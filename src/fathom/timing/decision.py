"""Decide what a ratio with its interval means, and whether more samples could change the decision."""

from __future__ import annotations

from typing import Literal

from fathom.timing.ratio import Ratio

Decision = Literal["faster", "slower", "same", "ambiguous"]
MARGIN = 0.01
SETTLED = 0.25  # of the margin: how narrow an ambiguous interval must become
SHARE = 0.1  # of a gain: how wide its interval may be to either side


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
