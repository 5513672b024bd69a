"""Computing in float64."""

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
from fathom.diagnosis.signals import Signals

DOUBLE = re.compile(r"dgemm|<double|double>|f64f64|_d884", re.IGNORECASE)
PRODUCT = re.compile(r"gemm|f64f64|_d884|conv", re.IGNORECASE)
NARROWER = ("matmul.tf32", "matmul.bf16")  # what single precision may be: the outcome lies between them
LIKELY = 0.15  # of a product's time then, where no ceilings are known
BYTES = (1 / 2 + 1 / 4) / 2  # of those of float64, in between as well


@rule("kernels-double-precision")
def double(signals: Signals) -> Found:
    """Products gain what the tensor cores' rates differ by, the rest what bytes do."""
    works = signals["kernels.work"]
    mine = [one for one in works if one.entry == "compute" and DOUBLE.search(one.family)]
    products = [one for one in mine if PRODUCT.search(one.family)]
    others = [one for one in mine if one not in products]
    if not mine:
        return
    factor, total = _factor(signals.get("kernels.ceilings").value or {}), family_totals(works)
    yield Candidate(
        kind="kernels-double-precision",
        claims=[*claims_of(products, 1 - factor), *claims_of(others, 1 - BYTES)],
        evidence=[
            Evidence("computing in float64", sum(one.ms for one in mine), "ms a step"),
            Evidence("of their time products need in a narrower type", 100 * factor, "%"),
        ],
        changes=(*shrink(products, total, factor), *shrink(others, total, BYTES)),
        doubt=0.15,
        check="print the dtypes of the batch and of the parameters",
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        region=usual((one.region, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )


def _factor(rates: dict[str, float]) -> float:
    known = [
        rates["matmul.fp64"] / rates[name] for name in NARROWER if rates.get(name) and "matmul.fp64" in rates
    ]
    return min(sum(known) / len(known), 1.0) if known else LIKELY
