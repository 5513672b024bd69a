"""Layer sizes that matrix products cannot load in full words."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Product, Signals

WORD = {"bf16": 8, "fp16": 8, "fp32": 4}  # elements in 16 bytes
VOCABULARY = 8192
MULTIPLE = {True: 128, False: 64}  # to which a vocabulary (True) or a layer is rounded up
LIKELY = {1: 0.35, 2: 0.4, 4: 0.6}  # of the time once aligned, by the largest power of two in the size
REACHED = 0.75  # of the ceiling, by aligned products
SMALL = 64
BACKWARD = "autograd::"


@rule("numbers-odd-vocabulary", "numbers-odd-size")
def odd_sizes(signals: Signals) -> Candidates:
    """Find odd sizes of weights; the number of rows that pass through a layer does not count."""
    products = [product for product in signals["numbers.products"] if product.dtype in WORD]
    rates = signals.get("kernels.ceilings").value or {}
    odd = {
        size for product in products if not product.work.path.startswith(BACKWARD) for size in _layer(product)
    }
    total = family_totals(signals["kernels.work"])
    for large in (True, False):
        sizes = {size for size in odd if (size >= VOCABULARY) == large}
        mine = [product for product in products if sizes & {product.m, product.n, product.k}]
        products = [product for product in products if product not in mine]
        if mine:
            yield _candidate(sizes, large, mine, total, rates)


def _layer(product: Product) -> list[int]:
    if product.batch > 1:
        return []
    return [size for size in (product.n, product.k) if size > SMALL and size % WORD[product.dtype]]


def _candidate(
    sizes: set[int], large: bool, mine: list[Product], total: dict[str, float], rates: dict[str, float]
) -> Candidate:
    works = [product.work for product in mine]
    ms = sum(work.ms for work in works)
    size = max(
        sizes,
        key=lambda s: sum(product.work.ms for product in mine if s in (product.m, product.n, product.k)),
    )
    step = MULTIPLE[large]
    factor = _factor(mine, size, ms, rates)
    aligned = -(-size // step) * step
    return Candidate(
        kind="numbers-odd-vocabulary" if large else "numbers-odd-size",
        claims=claims_of(works, 1 - factor),
        evidence=[
            Evidence(f"products with a size of {size:,}", ms, "ms per step"),
            Evidence("next aligned size", float(aligned), "elements"),
        ],
        changes=shrink(works, total, factor),
        doubt=0.2,
        confidence=0.85,
        check=f"pad {size} to {aligned}, and time the step",
        **site(works),
    )


def _factor(mine: list[Product], size: int, ms: float, rates: dict[str, float]) -> float:
    """Share of the time once aligned: from the ceiling if known, else a typical one for this alignment."""
    needs = [_need_ms(product, rates) for product in mine]
    known = [need for need in needs if need is not None]
    if ms > 0 and len(known) == len(needs):
        return min(sum(known) / REACHED / ms, 1.0)
    return LIKELY.get(size & -size, 1.0)


def _need_ms(product: Product, rates: dict[str, float]) -> float | None:
    rate = rates.get("matmul.tf32" if product.dtype == "fp32" else f"matmul.{product.dtype}")
    return (
        None
        if not rate
        else 2e3 * product.batch * product.m * product.n * product.k * product.work.count / rate
    )
