"""Quantised weights that cost time instead of saving it."""

from __future__ import annotations

from fathom.diagnosis.rules.candidates import mended
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Dequantised, Signals


@rule("kernels-dequantised-weights")
def dequantised(signals: Signals) -> Candidates:
    """Find weights that become float matrices for each product; unquantised, only the product would remain.

    The product's kernel is the same for unquantised weights, so the time of the others is what they save.
    """
    weights: Dequantised = signals["kernels.dequantised"]
    if not weights.works:
        return
    yield mended(
        signals,
        (weights.works, 0.0),
        evidence=[
            Evidence("kernels that dequantise weights", weights.ms, "ms per step"),
            Evidence(
                "the products that read them, as fast with unquantised weights", weights.products_ms, "ms"
            ),
            Evidence("number of these products", weights.count, "per step"),
        ],
        doubt=0.15,
        check="keep the weights in the products' dtype if memory allows, and time the step",
    )
