"""Estimate the pairs that a proof still needs, and derive its verdict from the deciding comparison."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from fathom.referee.verdict import Comparison, Verdict
from fathom.timing import SETTLED, SHARE, Ratio

MOST_ROUNDS = 60  # pairs of a proof
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
        return f"{self.pairs} pairs, the ratio is known to ± {100 * self.half:.2f} % · {left}"

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
    """Return the total number of pairs needed, if the interval narrows with their root; None if there is
    none.
    """
    if ratio.low is None or ratio.high is None:
        return None
    half = (ratio.high - ratio.low) / 2
    return max(ratio.pairs, ceil(ratio.pairs * (half / target(ratio, margin)) ** 2))


def outlook(ratio: Ratio | None, margin: float, spent_s: float, budget_s: float, most: int) -> Outlook | None:
    """Estimate the rest of a proof; None if there is no interval. `most` is the limit of pairs for any
    budget.
    """
    every = None if ratio is None else needed(ratio, margin)
    if ratio is None or every is None or ratio.low is None or ratio.high is None:
        return None
    a_pair = spent_s / ratio.pairs
    more = max(every - ratio.pairs, 2)
    soon = every <= most and spent_s + more * a_pair <= budget_s
    return Outlook(ratio.pairs, more, more * a_pair, (ratio.high - ratio.low) / 2, soon)


def _time(seconds: float) -> str:
    return f"~{seconds:.0f} s" if seconds < LONG_S else f"~{seconds / 60:.0f} min"


# The verdict
DISTURBED = 0.05  # scatter of processes: at most 3 % on an idle H200, 9 % or more beside other work


def conclude(verdict: Verdict, decisive: Comparison) -> None:
    """Set the verdict to the result of `decisive`, with a note if that is ambiguous."""
    verdict.verdict, verdict.ratio, verdict.interval = decisive.decision, decisive.ratio, decisive.interval
    note = doubt(decisive, verdict.margin)
    if note:
        verdict.notes.append(note)


def doubt(comparison: Comparison, margin: float) -> str | None:
    """Return why a result is ambiguous; None if it is not, or has no interval."""
    if comparison.decision != "ambiguous" or comparison.interval is None:
        return None
    half = (comparison.interval[1] - comparison.interval[0]) / 2
    if comparison.settled:
        return (
            f"The ratio is known to ± {100 * half:.2f} % and is at the edge of the margin of {margin:g}; "
            "change --margin to decide."
        )
    scatter = max(_scatter(comparison.baseline.blocks), _scatter(comparison.candidate.blocks))
    spread = f"by {100 * scatter:.1f} %" if scatter < 1 else f"{1 + scatter:.0f}-fold"
    text = f"Processes of the same side differ {spread} (interquartile range)"
    if scatter > DISTURBED:
        return f"{text}: something else uses the machine, or their work varies; prove it on an idle machine."
    known = f"{comparison.pairs} pairs give the ratio to ± {100 * half:.1f} %"
    return f"{text}, so {known}; {_more(comparison, half, margin)}."


def _more(comparison: Comparison, half: float, margin: float) -> str:
    """Return advice to settle the proof, assuming that the interval narrows with the root of the pairs."""
    assert comparison.ratio is not None
    enough = max(abs(abs(comparison.ratio - 1) - margin), margin * SETTLED)
    pairs = max(comparison.pairs + 2, ceil(comparison.pairs * (half / enough) ** 2))
    if pairs > MOST_ROUNDS:
        return f"a wider --margin may settle it; more time does not, for {MOST_ROUNDS} pairs are the limit"
    return f"about {pairs} would settle it; allow them with a longer --budget"


def _scatter(blocks: list[float]) -> float:
    low, high = np.percentile(blocks, [25, 75])
    return float(high / low - 1)
