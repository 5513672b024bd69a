"""Loops over small products that one batched product could replace."""

from __future__ import annotations

from math import ceil

from fathom.diagnosis.rules.rule import (
    LAUNCHING,
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
from fathom.units import MS_PER_S

TILE = 128  # rows and columns of cuBLAS's usual tile
REACHED = 0.5  # of the memory or arithmetic ceiling, by a batched product
HALF = 0.5  # of the device's time, if no ceilings are known


@rule("kernels-serial-small-products")
def small_products(signals: Signals) -> Candidates:
    """Find runs of products with fewer tiles than there are multiprocessors."""
    places = signals["device.multiprocessors"]
    mine = [product for product in signals["kernels.product_runs"] if _tiles(product) < places]
    if not mine:
        return
    works = [product.work for product in mine]
    factor = _batched(mine, signals.get("kernels.ceilings").value or {})
    calls = signals.get("host.ops").value or {}
    yield Candidate(
        kind="kernels-serial-small-products",
        claims=claims_of(works, 1 - factor),
        evidence=[
            Evidence(
                f"products of {mine[0].m} × {mine[0].n} × {mine[0].k} and similar, in sequence",
                sum(work.count for work in works),
                "per step",
            ),
            Evidence(
                "tiles of each product, at most",
                float(max(map(_tiles, mine))),
                f"of {places} multiprocessors",
            ),
            Evidence("time of these products", sum(work.ms for work in works), "ms per step"),
        ],
        changes=(
            *shrink(works, family_totals(signals["kernels.work"]), factor),
            *_fewer_calls(mine, calls),
        ),
        spill=LAUNCHING,
        doubt=0.2,
        confidence=0.8,
        check="torch.bmm over the stacked operands instead of the loop, and time the step",
        **site(works),
    )


def _tiles(product: Product) -> int:
    return ceil(product.m / TILE) * ceil(product.n / TILE)


def _batched(mine: list[Product], rates: dict[str, float]) -> float:
    """Share of the device's time as one batched product, bound by its operands or its arithmetic."""
    now = sum(product.work.ms for product in mine)
    memory = rates.get("memory")
    needed = 0.0
    for product in mine:
        rate = rates.get("matmul.tf32" if product.dtype == "fp32" else f"matmul.{product.dtype}")
        if not rate or not memory:
            return HALF
        size = 2 * (product.m * product.k + product.k * product.n + product.m * product.n)
        needed += (
            MS_PER_S
            * product.work.count
            * max(2 * product.m * product.n * product.k / rate, size / memory)
            / REACHED
        )
    return min(needed / now, 1.0) if now > 0 else HALF


def _fewer_calls(mine: list[Product], calls: dict[str, float]) -> tuple[str, ...]:
    """Changes of the host: one call of the outermost op of each run instead of many."""
    counts: dict[str, float] = {}
    for product in mine:
        name = _outermost(product)
        counts[name] = max(counts.get(name, 0.0), product.work.count)
    return tuple(
        f"op:{name}={1 - (count - 1) / max(calls[name], count):.6f}"
        for name, count in counts.items()
        if calls.get(name)
    )


def _outermost(product: Product) -> str:
    """The outermost op of the library, without regions of the program."""
    return next(
        (name for name in product.work.ops if name.startswith(("aten::", "autograd::"))), product.work.op
    )
