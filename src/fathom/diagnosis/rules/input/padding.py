"""Rows of products that are no tokens of the program's: only what it reports tells them apart."""

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

LEAST = 0.1  # of the rows: a next token less in each sequence, or a few special ones, are no padding
MAIN = 0.5  # of the forward products' FLOPs: below it no number of rows stands for the batch
NOT_OF_TOKENS = ("Optimizer.step#", "Optimizer.zero_grad#")


@rule("input-padding")
def padding(signals: Signals) -> Candidates:
    """Tokens that are reported, against the rows that most of the forward pass multiplies."""
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
            Evidence("rows that the model's products work on", rows, "a step"),
            Evidence("tokens that the program reports", tokens, "a step"),
            Evidence("so of the rows are padding, if it reports all that are none", 100 * share, "%"),
        ],
        changes=shrink(works, family_totals(every), 1.0 - share),
        doubt=0.4,  # batches of like length hold some, too; attention's part goes with the square
        confidence=0.6,
        check="batches of like length, or packed sequences, and time the tokens a second",
    )


def _rows(products: list[Product]) -> float:
    """The rows that most FLOPs of the forward pass belong to, 0 where none stand out."""
    flops: dict[int, float] = {}
    for product in products:
        if product.batch == 1 and "Backward" not in product.work.path:
            flops[product.m] = (
                flops.get(product.m, 0.0) + product.m * product.n * product.k * product.work.count
            )
    rows = max(flops, key=lambda m: flops[m], default=0)
    return float(rows) if rows and flops[rows] >= MAIN * sum(flops.values()) else 0.0
