"""Derive the verdict from the deciding comparison. If it is ambiguous, say why and how to settle it."""

from __future__ import annotations

from math import ceil

import numpy as np

from fathom.referee.race import MOST_ROUNDS
from fathom.referee.verdict import Comparison, Verdict
from fathom.timing import SETTLED

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
            f"The ratio is known to ± {half:.2%} and is at the edge of the margin of {margin:g}; "
            "change --margin to decide."
        )
    scatter = max(_scatter(comparison.baseline.blocks), _scatter(comparison.candidate.blocks))
    spread = f"by {scatter:.1%}" if scatter < 1 else f"{1 + scatter:.0f}-fold"
    text = f"Processes of the same side differ {spread} (interquartile range)"
    if scatter > DISTURBED:
        return f"{text}: something else uses the machine, or their work varies; prove it on an idle machine."
    known = f"{comparison.pairs} pairs give the ratio to ± {half:.1%}"
    return f"{text}, so {known}; {_more(comparison, half, margin)}."


def _more(comparison: Comparison, half: float, margin: float) -> str:
    """Return advice to settle the proof, assuming that the interval narrows with the root of the pairs."""
    assert comparison.ratio is not None
    enough = max(abs(abs(comparison.ratio - 1) - margin), margin * SETTLED)
    needed = max(comparison.pairs + 2, ceil(comparison.pairs * (half / enough) ** 2))
    if needed > MOST_ROUNDS:
        return f"a wider --margin may settle it; more time does not, for {MOST_ROUNDS} pairs are the limit"
    return f"about {needed} would settle it; allow them with a longer --budget"


def _scatter(blocks: list[float]) -> float:
    low, high = np.percentile(blocks, [25, 75])
    return float(high / low - 1)
