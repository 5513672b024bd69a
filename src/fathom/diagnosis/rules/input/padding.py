"""Padding: rows of products that are not tokens, known from the tokens that the program reports."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
)
from fathom.diagnosis.signals import Product, Signals

LEAST = 0.1  # of the rows: one token less per sequence, or a few special tokens, is not padding
MAIN = 0.5  # of the forward products' FLOPs: below it, no number of rows represents the batch
NOT_OF_TOKENS = ("Optimizer.step#", "Optimizer.zero_grad#")


@rule("input-padding")
def padding(signals: Signals) -> Candidates:
    """Compare the reported tokens with the rows that most of the forward pass multiplies."""
    tokens, products = signals["input.told_tokens"], signals["numbers.products"]
    rows = _rows(products) * signals.number("input.micro_steps", 1.0)
    share = 1.0 - tokens / rows if rows else 0.0
    if share < LEAST:
        return
    every = signals["kernels.work"]
    works = [
        w for w in every if w.entry == Entry.COMPUTE and not any(mark in w.path for mark in NOT_OF_TOKENS)
    ]
    yield Candidate(
        kind="input-padding",
        claims=claims_of(works, share),
        evidence=[
            Evidence("rows of the model's products", rows, "per step"),
            Evidence("tokens reported by the program", tokens, "per step"),
            Evidence("share of rows that are padding, if all other tokens are reported", 100 * share, "%"),
        ],
        changes=shrink(works, family_totals(every), 1.0 - share),
        doubt=0.4,  # batches of similar length have padding too; attention is quadratic in the length
        confidence=0.6,
        check="batches of similar length, or packed sequences, and compare tokens per second",
    )


def _rows(products: list[Product]) -> float:
    """The number of rows with most FLOPs of the forward pass; 0 if none dominates."""
    flops: dict[int, float] = {}
    for product in products:
        if product.batch == 1 and "Backward" not in product.work.path:
            flops[product.m] = (
                flops.get(product.m, 0.0) + product.m * product.n * product.k * product.work.count
            )
    rows = max(flops, key=lambda m: flops[m], default=0)
    return float(rows) if rows and flops[rows] >= MAIN * sum(flops.values()) else 0.0
