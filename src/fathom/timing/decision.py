"""What a ratio with its interval amounts to, and whether more samples could change that."""

from __future__ import annotations

from typing import Literal

from fathom.timing.ratio import Ratio

Decision = Literal["faster", "slower", "same", "ambiguous"]
MARGIN = 0.01
SETTLED = 0.25  # of the margin: as narrow as an interval has to be that decides nothing
SHARE = 0.1  # of a gain that its interval may be wide to either side


def decide(ratio: Ratio | None, margin: float = MARGIN) -> Decision:
    """`same` when the whole interval lies within 1 ± margin, `faster` or `slower` when all of it lies
    beyond; else `ambiguous`."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return "ambiguous"
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "same"
    if ratio.high < 1 - margin:
        return "faster"
    return "slower" if ratio.low > 1 + margin else "ambiguous"


def settled(ratio: Ratio | None, margin: float = MARGIN) -> bool:
    """Whether the interval is as narrow as the decision needs: to either side no more than half the margin,
    or a tenth of what was gained or lost; a quarter of the margin where that still decides nothing."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return False
    half = (ratio.high - ratio.low) / 2
    if decide(ratio, margin) == "ambiguous":
        return half <= margin * SETTLED
    return half <= max(margin / 2, SHARE * abs(1 - ratio.value))
