"""Loops over products that one batched product could do."""

from __future__ import annotations

from math import ceil

from fathom.diagnosis.rules.rule import (
    LAUNCHING,
    Candidate,
    Evidence,
    Found,
    claims_of,
    family_totals,
    rule,
    shrink,
    usual,
)
from fathom.diagnosis.signals import Product, Signals
from fathom.units import MS_PER_S

TILE = 128  # rows and columns that a multiprocessor takes of a product, by cuBLAS's usual choice
REACHED = 0.5  # of the ceiling of memory or arithmetic by a batched product
HALF = 0.5  # of the device's time, where no ceilings are known


@rule("kernels-serial-small-products")
def small_products(signals: Signals) -> Found:
    """Runs of products with fewer tiles than there are multiprocessors."""
    places = signals["device.multiprocessors"]
    mine = [one for one in signals["kernels.product_runs"] if _tiles(one) < places]
    if not mine:
        return
    works = [one.work for one in mine]
    factor = _batched(mine, signals.get("kernels.ceilings").value or {})
    calls = signals.get("host.ops").value or {}
    yield Candidate(
        kind="kernels-serial-small-products",
        claims=claims_of(works, 1 - factor),
        evidence=[
            Evidence(
                f"products of {mine[0].m} × {mine[0].n} × {mine[0].k} and the like, one after the other",
                sum(one.count for one in works),
                "a step",
            ),
            Evidence("tiles in each, at most", float(max(map(_tiles, mine))), f"of {places} places"),
            Evidence("they take", sum(one.ms for one in works), "ms a step"),
        ],
        changes=(
            *shrink(works, family_totals(signals["kernels.work"]), factor),
            *_fewer_calls(mine, calls),
        ),
        spill=LAUNCHING,
        doubt=0.2,
        confidence=0.8,
        check="torch.bmm over the stacked operands instead of the loop, and time the step",
        source=usual((one.source, one.ms) for one in works),
        module=usual((one.module, one.ms) for one in works),
        family=usual((one.family, one.ms) for one in works),
    )


def _tiles(one: Product) -> int:
    return ceil(one.m / TILE) * ceil(one.n / TILE)


def _batched(mine: list[Product], rates: dict[str, float]) -> float:
    """Of the device's time, in one product: bounded by its operands or its arithmetic."""
    now = sum(one.work.ms for one in mine)
    memory = rates.get("memory")
    needed = 0.0
    for one in mine:
        rate = rates.get("matmul.tf32" if one.dtype == "fp32" else f"matmul.{one.dtype}")
        if not rate or not memory:
            return HALF
        size = 2 * (one.m * one.k + one.k * one.n + one.m * one.n)
        needed += MS_PER_S * one.work.count * max(2 * one.m * one.n * one.k / rate, size / memory) / REACHED
    return min(needed / now, 1.0) if now > 0 else HALF


def _fewer_calls(mine: list[Product], calls: dict[str, float]) -> tuple[str, ...]:
    """The host's part: one call of the outermost op of each run instead of as many as it has."""
    counts: dict[str, float] = {}
    for one in mine:
        name = _outermost(one)
        counts[name] = max(counts.get(name, 0.0), one.work.count)
    return tuple(
        f"op:{name}={1 - (count - 1) / max(calls[name], count):.6f}"
        for name, count in counts.items()
        if calls.get(name)
    )


def _outermost(one: Product) -> str:
    """Of the library's ops, regions of the program left out."""
    return next((name for name in one.work.ops if name.startswith(("aten::", "autograd::"))), one.work.op)
