"""Attention in steps: the library's own fallback, or written out as product, softmax, product."""

from __future__ import annotations

import re
from math import prod

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
Scores = tuple[int, int, int]  # batch times heads, queries, keys
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


def _fused(mine: list[Work], scores: set[Scores], rates: dict[str, float]) -> float:
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


def _makes_scores(one: Product, scores: set[Scores]) -> bool:
    forward = not one.work.path.startswith(BACKWARD)
    return forward and one.batch > 1 and (one.batch, one.m, one.n) in scores and one.k < one.n


def _masks(one: Work, scores: set[Scores]) -> bool:
    return any(_as_scores(size) in scores for size in one.sizes) and any(
        MASKED.search(name) for name in one.ops
    )


def _scores(one: Work) -> Scores | None:
    """What the softmax reads."""
    found = _as_scores(one.sizes[0] if one.sizes else [])
    return found if found and min(found[1:]) >= LONG else None


def _as_scores(sizes: list[int]) -> Scores | None:
    """Of a tensor with as many dimensions. Activations (batch, tokens, width) can be as wide as there are
    keys, but have no heads."""
    return (prod(sizes[:-2]), sizes[-2], sizes[-1]) if len(sizes) >= LEADING else None


def _on(one: Work, scores: set[Scores]) -> bool:
    """Whether it reads scores, or is the product that makes them."""
    large = [sizes for sizes in one.sizes if len(sizes) >= LEADING]
    if any(_as_scores(sizes) in scores for sizes in large):
        return True
    makes = "bmm" in one.op and len(large) > 1
    return makes and (prod(large[0][:-2]), large[0][-2], large[1][-1]) in scores
