"""Padding: rows of matmuls that are not tokens, according to the tokens that the program reports."""

from __future__ import annotations

from fathom.analysis.causes import OPTIMIZER_STEP, ZEROING
from fathom.analysis.entries import Entry
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.rules.candidates import mended
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals

LEAST = 0.1  # of the rows: one token less per sequence, or a few special tokens, is not padding
MAIN = 0.5  # of the forward products' FLOPs: below it, no number of rows represents the batch
NOT_OF_TOKENS = (OPTIMIZER_STEP, ZEROING)


@rule("input-padding")
def padding(signals: Signals) -> Candidates:
    """Compare the reported tokens with the rows that most of the forward pass multiplies."""
    tokens, products = signals["input.told_tokens"], signals["numbers.products"]
    rows = _rows(products) * signals.number("input.micro_steps", 1.0)
    share = 1.0 - tokens / rows if rows else 0.0
    if share < LEAST:
        return
    computing = (work for work in signals["kernels.work"] if work.entry == Entry.COMPUTE)
    works = [work for work in computing if not any(mark in work.path for mark in NOT_OF_TOKENS)]
    yield mended(
        signals,
        (works, 1.0 - share),
        evidence=[
            Evidence("rows of the model's matmuls", rows, "per step"),
            Evidence("tokens reported by the program", tokens, "per step"),
            Evidence("share of padding rows, if all other tokens are reported", 100 * share, "%"),
        ],
        doubt=0.4,  # batches of similar length have padding too; attention is quadratic in the length
        confidence=0.6,
        place=(),
        check="use batches of similar length, or packed sequences, and compare tokens per second",
    )


def _rows(products: list[Product]) -> float:
    """Return the number of rows with most of the forward pass's FLOPs; 0 if no number dominates."""
    forward = (product for product in products if "Backward" not in product.work.path)
    flops = summed((product.m, product.flops) for product in forward if product.batch == 1)
    rows = max(flops, key=lambda m: flops[m], default=0)
    return float(rows) if rows and flops[rows] >= MAIN * sum(flops.values()) else 0.0
