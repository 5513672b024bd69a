"""Attention in steps: the library's own fallback, or written out as product, softmax, product."""

from __future__ import annotations

import re

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

FALLBACK = "_scaled_dot_product_attention_math"
SOFTMAX = re.compile(r"aten::(_safe_softmax|_softmax|softmax)$")
LONG = 128  # tokens: shorter scores fit in the cache, and are hardly worth a fused kernel
LEADING = 3  # dimensions: (batch and heads, queries, keys)
FUSED = 0.2  # of the time
CHECK = "with torch.nn.attention.sdpa_kernel(...) name a fused kernel, which says why it cannot be used"


@rule("kernels-math-attention")
def math_attention(signals: Signals) -> Found:
    """All work on scores: tensors of the size that a softmax over keys has."""
    works = signals["kernels.work"]
    scores = {size for one in works if SOFTMAX.search(one.op) and (size := _scores(one))}
    mine = [one for one in works if FALLBACK in one.path or (scores and _on(one, scores))]
    if not mine or not any(FALLBACK in one.path or "bmm" in one.path for one in mine):
        return
    yield Candidate(
        kind="kernels-math-attention",
        claims=claims_of(mine, 1 - FUSED),
        evidence=[
            Evidence("attention whose scores go through memory", sum(one.ms for one in mine), "ms a step"),
            Evidence("kernels of it", sum(one.count for one in mine), "a step"),
        ],
        changes=shrink(mine, family_totals(works), FUSED),
        doubt=0.5,
        confidence=0.85,
        check=CHECK,
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        region=usual((one.region, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )


def _scores(one: Work) -> tuple[int, int] | None:
    """Queries and keys of what the softmax reads."""
    sizes = one.sizes[0] if one.sizes else []
    if len(sizes) < LEADING or min(sizes[-2:]) < LONG:
        return None
    return sizes[-2], sizes[-1]


def _on(one: Work, scores: set[tuple[int, int]]) -> bool:
    """Whether it reads scores, or is the product that makes them."""
    large = [sizes for sizes in one.sizes if len(sizes) >= LEADING]
    if any((sizes[-2], sizes[-1]) in scores for sizes in large):
        return True
    return "bmm" in one.op and len(large) > 1 and (large[0][-2], large[1][-1]) in scores
