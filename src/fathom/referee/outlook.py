"""Estimate the pairs that a proof still needs, from the scatter so far."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from fathom.timing import SETTLED, SHARE, Ratio

LONG_S = 120.0  # from here on times are shown in minutes


@dataclass(frozen=True)
class Outlook:
    """The proof needs `more` pairs in about `seconds`; `soon`: within its budget. `half`: present half
    width of the ratio's interval.
    """

    pairs: int
    more: int
    seconds: float
    half: float
    soon: bool

    def progress(self) -> str:
        """Return the progress so far and an estimate of the rest, in one line."""
        left = f"about {self.more} more, {_time(self.seconds)}" if self.soon else "does not decide soon"
        return f"{self.pairs} pairs, the ratio is known to ± {self.half:.2%} · {left}"

    def warning(self, margin: float, budget_s: float) -> str:
        """Return the warning that the proof will exceed its budget."""
        return (
            f"needs about {self.more} more pairs ({_time(self.seconds)}) to resolve {100 * margin:.3g} %, "
            f"more than its budget of {_time(budget_s)}; give --budget {ceil(self.seconds + budget_s)} "
            "or a wider --margin"
        )


def target(ratio: Ratio, margin: float) -> float:
    """Return the half width of the interval at which a proof of this ratio ends (see `timing.settled`)."""
    off_the_edge = abs(abs(ratio.value - 1) - margin)
    narrow = max(margin / 2, SHARE * abs(1 - ratio.value))
    return max(min(off_the_edge, narrow), margin * SETTLED)


def needed(ratio: Ratio, margin: float) -> int | None:
    """Return the total number of pairs needed, if the interval narrows with their root; None without one."""
    if ratio.low is None or ratio.high is None:
        return None
    half = (ratio.high - ratio.low) / 2
    return max(ratio.pairs, ceil(ratio.pairs * (half / target(ratio, margin)) ** 2))


def outlook(ratio: Ratio | None, margin: float, spent_s: float, budget_s: float, most: int) -> Outlook | None:
    """Estimate the rest of a proof; None without an interval. `most` is the limit of pairs for any budget."""
    every = None if ratio is None else needed(ratio, margin)
    if ratio is None or every is None or ratio.low is None or ratio.high is None:
        return None
    a_pair = spent_s / ratio.pairs
    more = max(every - ratio.pairs, 2)
    soon = every <= most and spent_s + more * a_pair <= budget_s
    return Outlook(ratio.pairs, more, more * a_pair, (ratio.high - ratio.low) / 2, soon)


def _time(seconds: float) -> str:
    return f"~{seconds:.0f} s" if seconds < LONG_S else f"~{seconds / 60:.0f} min"
