"""Unfused attention: the library's math fallback, or a matmul, a softmax and a matmul in the program."""

from __future__ import annotations

import re
from math import prod

from fathom.diagnosis.rules.candidates import PLACE, mended, ms_of, number_of_kernels, rates_of
from fathom.diagnosis.rules.kernels.attention import fused_ms
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals, Work
from fathom.diagnosis.signals.numbers import product_of

FALLBACK = "_scaled_dot_product_attention_math"
SOFTMAX = re.compile(r"aten::(_safe_softmax|_softmax|softmax)$")
LONG = 128  # tokens: shorter scores fit in the cache and need no fused kernel
LEADING = 3  # dimensions: (batch and heads, queries, keys)
FUSED = 0.2  # of the time, if sizes or ceilings are unknown
MASKED = re.compile(r"aten::(masked_fill_?|where|tril|add)$")  # on scores: a mask usually hides half
Scores = tuple[int, int, int]  # batch times heads, queries, keys
CHECK = (
    "request a fused kernel with torch.nn.attention.sdpa_kernel(...): PyTorch then warns why it cannot run"
)


@rule("kernels-math-attention")
def math_attention(signals: Signals) -> Candidates:
    """Find all work on attention scores: tensors as large as a softmax over keys."""
    works = signals["kernels.work"]
    scores = {size for work in works if SOFTMAX.search(work.op) and (size := _scores(work))}
    mine = [work for work in works if FALLBACK in work.path or (scores and _on(work, scores))]
    if not mine or not any(FALLBACK in work.path or "bmm" in work.path for work in mine):
        return
    yield mended(
        signals,
        (mine, _fused(mine, scores, rates_of(signals))),
        place=PLACE,
        evidence=[
            Evidence("attention kernels that write their scores to memory", ms_of(mine), "ms per step"),
            number_of_kernels(mine),
        ],
        doubt=0.15,
        confidence=0.85,
        check=CHECK,
    )


def _fused(mine: list[Work], scores: set[Scores], rates: dict[str, float]) -> float:
    """Return the share of the time with a fused kernel, from the first forward matmul and the ceiling."""
    now, masked = ms_of(mine), any(_masks(work, scores) for work in mine)
    behind = any(work.backward for work in mine)
    firsts = [product for product in map(product_of, mine) if product and _makes_scores(product, scores)]
    needed = 0.0
    for product in firsts:
        rate = product.ceiling(rates)
        if not rate:
            return FUSED
        for back in (False, True)[: 1 + behind]:
            needed += product.work.count * fused_ms(product.batch, *product.sides, rate, masked, back)
    return min(needed / now, 1.0) if needed and now > 0 else FUSED


def _makes_scores(product: Product, scores: set[Scores]) -> bool:
    made = product.batch > 1 and (product.batch, product.m, product.n) in scores
    return made and product.k < product.n and not product.work.backward


def _masks(work: Work, scores: set[Scores]) -> bool:
    about_scores = any(_as_scores(size) in scores for size in work.sizes)
    return about_scores and any(MASKED.search(name) for name in work.ops)


def _scores(work: Work) -> Scores | None:
    """Return the size of the scores that the softmax reads; None if they are short."""
    size = _as_scores(work.sizes[0] if work.sizes else [])
    return size if size and min(size[1:]) >= LONG else None


def _as_scores(sizes: list[int]) -> Scores | None:
    """Return the size of a tensor interpreted as scores; None if it has no heads dimension.

    Activations (batch, tokens, width) can be as wide as there are keys, but have no heads.
    """
    return (prod(sizes[:-2]), sizes[-2], sizes[-1]) if len(sizes) >= LEADING else None


def _on(work: Work, scores: set[Scores]) -> bool:
    """Return whether the work reads scores, or is the matmul that computes them."""
    large = [sizes for sizes in work.sizes if len(sizes) >= LEADING]
    if any(_as_scores(sizes) in scores for sizes in large):
        return True
    makes = "bmm" in work.op and len(large) > 1
    return makes and (prod(large[0][:-2]), large[0][-2], large[1][-1]) in scores
