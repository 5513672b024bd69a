"""Attention heads of a size that no fused kernel takes as it is."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import (
    Candidate,
    Evidence,
    Found,
    claims_of,
    family_totals,
    rule,
    shrink,
    usual,
)
from fathom.diagnosis.signals import Signals, Work

ATTENTION = "scaled_dot_product"
WORD = 8  # numbers that heads are padded to a multiple of
FACTOR = 0.55


@rule("numbers-head-size")
def head_size(signals: Signals) -> Found:
    """Padding and what it makes slower lie beneath the attention's op."""
    works = signals["kernels.work"]
    mine = [one for one in works if ATTENTION in one.path]
    sizes = {size: ms for one in mine if (size := _head(one)) for ms in [one.ms] if size % WORD}
    if not sizes:
        return
    size = max(sizes, key=lambda s: sizes[s])
    ms = sum(one.ms for one in mine)
    yield Candidate(
        kind="numbers-head-size",
        claims=claims_of(mine, 1 - FACTOR),
        evidence=[
            Evidence(f"attention over heads of {size}, padding included", ms, "ms a step"),
            Evidence(
                "the next sizes that suit are multiples of 64; this one is padded to",
                -(-size // WORD) * WORD,
                "numbers",
            ),
        ],
        changes=shrink(mine, family_totals(works), FACTOR),
        doubt=0.5,
        confidence=0.85,
        check="change the number of heads so that a head has 64 or 128 numbers, and time the step",
        source=usual((one.source, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )


def _head(one: Work) -> int:
    query = one.sizes[0] if one.sizes else []
    return query[-1] if len(query) == 4 else 0
