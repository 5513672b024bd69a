"""Attention heads larger than any fused kernel supports."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.kernels.attending import head_of, needed_ms
from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals, Work

LARGEST = 256  # head size that flash attention and cuDNN support
ATTENDS = re.compile(r"aten::_(efficient|flash)_attention_(forward|backward)$")


def large_heads(signals: Signals) -> Candidates:
    """Report heads that are too large: more, smaller heads need the same FLOPs in a fused kernel."""
    works = signals["kernels.work"]
    mine = [work for work in works if ATTENDS.search(work.op) and head_of(work) > LARGEST]
    now, needed = sum(work.ms for work in mine), _needed_ms(mine, signals.get("kernels.ceilings").value or {})
    if not mine or needed is None or needed >= now:
        return
    yield Candidate(
        kind="numbers-head-size",
        claims=claims_of(mine, 1 - needed / now),
        evidence=[
            Evidence(f"attention over heads of {max(map(head_of, mine))}", now, "ms per step"),
            Evidence("largest head size of fused kernels", LARGEST, "numbers"),
        ],
        changes=shrink(mine, family_totals(works), needed / now),
        doubt=0.2,
        confidence=0.8,
        check="divide the width into more heads of size 64 or 128, and time the step",
        **site(mine, "source", "family"),
    )


def _needed_ms(mine: list[Work], rates: dict[str, float]) -> float | None:
    """Milliseconds of a fused kernel, if it supported the heads; None if unknown for any of them."""
    needs = [needed_ms(work, rates, causal=False) for work in mine]
    known = [need for need in needs if need is not None]
    return sum(known) if len(known) == len(needs) else None
