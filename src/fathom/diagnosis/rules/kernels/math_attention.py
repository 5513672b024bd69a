"""Attention in steps: the library's own fallback, or written out as product, softmax, product."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.kernels.attending import fused_ms
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
from fathom.diagnosis.signals import Product, Signals, Work
from fathom.diagnosis.signals.numbers import product_of

BACKWARD = "autograd::"
FALLBACK = "_scaled_dot_product_attention_math"
SOFTMAX = re.compile(r"aten::(_safe_softmax|_softmax|softmax)$")
LONG = 128  # tokens: shorter scores fit in the cache, and are hardly worth a fused kernel
LEADING = 3  # dimensions: (batch and heads, queries, keys)
FUSED = 0.2  # of the time, where sizes or ceilings are not known
MASKED = re.compile(
    r"aten::(masked_fill_?|where|tril|add)$"
)  # on scores: what is not seen is half, as a rule
CHECK = "with torch.nn.attention.sdpa_kernel(...) name a fused kernel, which says why it cannot be used"


@rule("kernels-math-attention")
def math_attention(signals: Signals) -> Found:
    """All work on scores: tensors of the size that a softmax over keys has."""
    works = signals["kernels.work"]
    scores = {size for one in works if SOFTMAX.search(one.op) and (size := _scores(one))}
    mine = [one for one in works if FALLBACK in one.path or (scores and _on(one, scores))]
    if not mine or not any(FALLBACK in one.path or "bmm" in one.path for one in mine):
        return
    factor = _fused(mine, scores, signals.get("kernels.ceilings").value or {})
    yield Candidate(
        kind="kernels-math-attention",
        claims=claims_of(mine, 1 - factor),
        evidence=[
            Evidence("attention whose scores go through memory", sum(one.ms for one in mine), "ms a step"),
            Evidence("kernels of it", sum(one.count for one in mine), "a step"),
        ],
        changes=shrink(mine, family_totals(works), factor),
        doubt=0.15,
        confidence=0.85,
        check=CHECK,
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        region=usual((one.region, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )


def _fused(mine: list[Work], scores: set[tuple[int, int]], rates: dict[str, float]) -> float:
    """Of its time: as the forward pass's first product and its ceiling tell."""
    now, masked = sum(one.ms for one in mine), any(_masks(one, scores) for one in mine)
    behind = any(one.path.startswith(BACKWARD) for one in mine)
    firsts = [one for one in map(product_of, mine) if one and _makes_scores(one, scores)]
    needed = 0.0
    for one in firsts:
        rate = rates.get("matmul.tf32" if one.dtype == "fp32" else f"matmul.{one.dtype}")
        if not rate:
            return FUSED
        for back in (False, True)[: 1 + behind]:
            needed += one.work.count * fused_ms(one.batch, one.m, one.n, one.k, rate, masked, back)
    return min(needed / now, 1.0) if needed and now > 0 else FUSED


def _makes_scores(one: Product, scores: set[tuple[int, int]]) -> bool:
    forward = not one.work.path.startswith(BACKWARD)
    return forward and one.batch > 1 and (one.m, one.n) in scores and one.k < one.n


def _masks(one: Work, scores: set[tuple[int, int]]) -> bool:
    on = any(len(size) >= LEADING and (size[-2], size[-1]) in scores for size in one.sizes)
    return on and any(MASKED.search(name) for name in one.ops)


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
