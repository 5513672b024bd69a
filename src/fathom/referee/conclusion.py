"""The verdict by the condition that decides; where it is ambiguous, why, and what would settle it."""

from __future__ import annotations

from math import ceil

import numpy as np

from fathom.referee.race import MOST_ROUNDS
from fathom.referee.verdict import Comparison, Verdict
from fathom.timing import SETTLED

DISTURBED = 0.05  # at most 3 % on an H200 of one's own, 9 % and more beside another's work on it


def conclude(verdict: Verdict, decisive: Comparison) -> None:
    """What `decisive` found is the verdict, with a note where that decides nothing."""
    verdict.verdict, verdict.ratio, verdict.interval = decisive.decision, decisive.ratio, decisive.interval
    note = doubt(decisive, verdict.margin)
    if note:
        verdict.notes.append(note)


def doubt(found: Comparison, margin: float) -> str | None:
    """None where there is none, or no interval that would say how large it is."""
    if found.decision != "ambiguous" or found.interval is None:
        return None
    half = (found.interval[1] - found.interval[0]) / 2
    if found.settled:
        return (
            f"The ratio is known to ± {half:.2%} and lies where the margin of {margin:g} ends; "
            "--margin decides which side of it counts."
        )
    scatter = max(_scatter(found.baseline.blocks), _scatter(found.candidate.blocks))
    apart = f"by {scatter:.1%}" if scatter < 1 else f"{1 + scatter:.0f}-fold"
    told = f"Processes of the same side differ {apart} (the middle half of them)"
    if scatter > DISTURBED:
        return f"{told}: something else uses the machine, or their own work varies. Prove it undisturbed."
    return f"{told}, so {found.pairs} pairs tell the ratio to ± {half:.1%}; {_more(found, half, margin)}."


def _more(found: Comparison, half: float, margin: float) -> str:
    """What would bring the interval away from where the margin ends, or settle it there, if its width goes
    by the root of pairs."""
    assert found.ratio is not None
    enough = max(abs(abs(found.ratio - 1) - margin), margin * SETTLED)
    needed = max(found.pairs + 2, ceil(found.pairs * (half / enough) ** 2))
    if needed > MOST_ROUNDS:
        return f"a wider --margin may settle it; more time does not, for {MOST_ROUNDS} are the most"
    return f"some {needed} would settle it, which a longer --budget allows"


def _scatter(blocks: list[float]) -> float:
    low, high = np.percentile(blocks, [25, 75])
    return float(high / low - 1)
