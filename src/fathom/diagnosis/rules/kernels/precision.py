"""Products in float32: without tensor cores, or where bfloat16 would do."""

from __future__ import annotations

import re
from dataclasses import replace

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

SIMT = re.compile(r"sgemm|simt|_ffma|f32f32_f32f32|gemv2?T|gemmSN", re.IGNORECASE)
TENSOR = re.compile(r"tf32|tensorop|1688|wgmma|hmma", re.IGNORECASE)
FLOAT = re.compile(r"<float\b|float>")
ABOVE = 1.1  # of the ceiling without tensor cores: a product that is faster has them
LARGE = 64  # rows, columns and depth of a product that tensor cores help
MOSTLY = 0.5  # of the products: less, and the program has chosen float32 for a part
REACHED = 0.9  # of the ceiling of bfloat16 by large products
MEMORY = 0.55  # of an activation's time when it has half the bytes


@rule("kernels-tf32-off", "kernels-no-mixed-precision")
def precision(signals: Signals) -> Found:
    """Which of the two depends on what computes the products now."""
    singles = [one for one in signals["numbers.products"] if one.dtype == "fp32" and _large(one)]
    rates = signals.get("kernels.ceilings").value or {}
    works, total = signals["kernels.work"], family_totals(signals["kernels.work"])
    plain = [one.work for one in singles if _without_tensor_cores(one, rates)]
    tensor = [one.work for one in singles if one.work not in plain]
    if plain:
        factor = _ratio(rates, "matmul.fp32", "matmul.tf32", 0.2)
        yield _candidate("kernels-tf32-off", plain, shrink(plain, total, factor), factor)
    if sum(one.ms for one in tensor) > MOSTLY * sum(one.work.ms for one in signals["numbers.products"]):
        factor = _in_bfloat16([one for one in singles if one.work not in plain], rates)
        around = [
            w for w in works if w.entry == "compute" and FLOAT.search(w.family) and "Optimizer" not in w.path
        ]
        around = [w for w in around if w not in tensor]
        changes = (*shrink(tensor, total, factor), *shrink(around, total, MEMORY))
        found = _candidate("kernels-no-mixed-precision", tensor, changes, factor)
        yield _with(found, around)


def _with(found: Candidate, around: list[Work]) -> Candidate:
    return replace(found, claims=[*found.claims, *claims_of(around, 1 - MEMORY)], doubt=0.2)


def _large(one: Product) -> bool:
    return min(one.m, one.n, one.k) >= LARGE


def _without_tensor_cores(one: Product, rates: dict[str, float]) -> bool:
    flops = 2.0 * one.batch * one.m * one.n * one.k * one.work.count
    ceiling = rates.get("matmul.fp32")
    if ceiling and one.work.ms > 0 and flops / (one.work.ms / 1e3) > ABOVE * ceiling:
        return False
    return bool(SIMT.search(one.work.family)) and not TENSOR.search(one.work.family)


def _in_bfloat16(singles: list[Product], rates: dict[str, float]) -> float:
    """As the ceilings differ, or nearer to that of bfloat16: its kernels are the library's best."""
    ratio = _ratio(rates, "matmul.tf32", "matmul.bf16", 0.5)
    rate, now = rates.get("matmul.bf16"), sum(one.work.ms for one in singles)
    flops = sum(2.0 * one.batch * one.m * one.n * one.k * one.work.count for one in singles)
    return min(ratio, 1e3 * flops / (REACHED * rate) / now) if rate and now > 0 else ratio


def _ratio(rates: dict[str, float], slow: str, fast: str, otherwise: float) -> float:
    return min(rates[slow] / rates[fast], 1.0) if rates.get(slow) and rates.get(fast) else otherwise


def _candidate(kind: str, works: list[Work], changes: tuple[str, ...], factor: float) -> Candidate:
    ms = sum(one.ms for one in works)
    how = "ordinary arithmetic" if kind == "kernels-tf32-off" else "tensor cores, as TF32"
    return Candidate(
        kind=kind,
        claims=claims_of(works, 1 - factor),
        evidence=[
            Evidence(f"float32 products on {how}", ms, "ms a step"),
            Evidence("their time at the faster unit's ceiling, as a share", 100 * factor, "%"),
        ],
        changes=changes,
        doubt=0.2,
        check="fathom prove the program against itself with the setting",
        source=usual((one.source, one.ms) for one in works),
        module=usual((one.module, one.ms) for one in works),
        family=usual((one.family, one.ms) for one in works),
    )
