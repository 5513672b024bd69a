"""Attention heads that are larger than any fused kernel takes."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.kernels.attending import fused_ms
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, claims_of, family_totals, shrink, usual
from fathom.diagnosis.signals import Signals, Work
from fathom.diagnosis.signals.numbers import DTYPES

LARGEST = 256  # numbers a head, of flash attention and of cuDNN's
ATTENDS = re.compile(
    r"aten::_(efficient|flash)_attention_(forward|backward)$"
)  # (batch, tokens, heads, head)
BACKWARD = "_backward"


def large_heads(signals: Signals) -> Found:
    """As many smaller heads need the same products, which a fused kernel then does."""
    works = signals["kernels.work"]
    mine = [one for one in works if ATTENDS.search(one.op) and _head(one) > LARGEST]
    now, needed = sum(one.ms for one in mine), _needed_ms(mine, signals.get("kernels.ceilings").value or {})
    if not mine or needed is None or needed >= now:
        return
    yield Candidate(
        kind="numbers-head-size",
        claims=claims_of(mine, 1 - needed / now),
        evidence=[
            Evidence(f"attention over heads of {max(map(_head, mine))}", now, "ms a step"),
            Evidence("the most that fused kernels take", LARGEST, "numbers"),
        ],
        changes=shrink(mine, family_totals(works), needed / now),
        doubt=0.2,
        confidence=0.8,
        check="divide the width into more heads, of 64 or 128 numbers, and time the step",
        source=usual((one.source, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )


def _needed_ms(mine: list[Work], rates: dict[str, float]) -> float | None:
    """By a fused kernel, had the heads a size that it takes; None where the ceiling is not known."""
    total = 0.0
    for one in mine:
        rate = rates.get(f"matmul.{DTYPES.get(one.types[0], '')}") if one.types else None
        if not rate:
            return None
        total += one.count * _pass_ms(one, rate)
    return total


def _pass_ms(one: Work, rate: float) -> float:
    behind = BACKWARD in one.op  # the gradient comes first
    batch, queries, heads, head = one.sizes[0]
    keys = one.sizes[1 + behind][1]
    return fused_ms(batch * heads, queries, keys, head, rate, causal=False, backward=behind)


def _head(one: Work) -> int:
    return one.sizes[0][-1] if one.sizes and len(one.sizes[0]) == 4 else 0
