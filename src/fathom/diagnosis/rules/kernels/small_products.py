"""Loops over small matmuls that one batched matmul could replace."""

from __future__ import annotations

from math import ceil

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import LAUNCHING, count_of, mended, ms_of, rates_of
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals
from fathom.units import MS_PER_S

TILE = 128  # rows and columns of cuBLAS's usual tile
REACHED = 0.5  # of the memory or arithmetic ceiling, by a batched product
HALF = 0.5  # of the device's time, if no ceilings are known


@rule("kernels-serial-small-products")
def small_products(signals: Signals) -> Candidates:
    """Find runs of matmuls with fewer tiles than there are multiprocessors.

    A matmul that reads a large weight can be at its ceiling with a few tiles: a batched one is no faster.
    """
    places = signals["device.multiprocessors"]
    mine = [product for product in signals["kernels.product_runs"] if _tiles(product) < places]
    left = _batched(signals, mine)
    if not mine or left == 1.0:
        return
    works = [product.work for product in mine]
    says = "consecutive matmuls of {} × {} × {} and similar sizes".format(*mine[0].sides)
    tiles = float(max(map(_tiles, mine)))
    yield mended(
        signals,
        (works, left),
        host=_fewer_calls(mine, signals.get("host.ops").value or {}),
        evidence=[
            Evidence(says, count_of(works), "per step"),
            Evidence("tiles per matmul (at most)", tiles, f"of {places} multiprocessors"),
            Evidence("time of these matmuls", ms_of(works), "ms per step"),
        ],
        spill=LAUNCHING,
        confidence=0.8,
        check="use torch.bmm on the stacked operands instead of the loop, and time the step",
    )


def _tiles(product: Product) -> int:
    return ceil(product.m / TILE) * ceil(product.n / TILE)


def _batched(signals: Signals, mine: list[Product]) -> float:
    """Return the share of the device time as one batched matmul, bound by its operands or its arithmetic."""
    now = ms_of(product.work for product in mine)
    needed = _least_ms(mine, rates_of(signals)) or _at_ceiling_ms(signals, mine)
    return min(needed / REACHED / now, 1.0) if needed and now > 0 else HALF


def _least_ms(mine: list[Product], rates: dict[str, float]) -> float:
    """Return the time of the matmuls at their measured ceilings; 0 if one is unknown."""
    memory, needed = rates.get("memory"), 0.0
    for product in mine:
        rate = product.ceiling(rates)
        if not rate or not memory:
            return 0.0
        size = 2 * (product.m * product.k + product.k * product.n + product.m * product.n)
        each = max(2 * product.m * product.n * product.k / rate, size / memory)
        needed += MS_PER_S * product.work.count * each
    return needed


def _at_ceiling_ms(signals: Signals, mine: list[Product]) -> float:
    """Return the time of the matmuls at the ceilings of their families; 0 if one is unknown."""
    rows = {row.detail: row for row in signals["step.ledger"] if row.entry == Entry.COMPUTE and row.ms > 0}
    known = [(product.work.ms, rows.get(product.work.family)) for product in mine]
    if any(row is None or not row.at_ceiling_ms for _, row in known):
        return 0.0
    return sum(ms * row.at_ceiling_ms / row.ms for ms, row in known if row and row.at_ceiling_ms)


def _fewer_calls(mine: list[Product], calls: dict[str, float]) -> tuple[str, ...]:
    """Return changes of host time: one call of each run's outermost op instead of many."""
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
    """Return the library's outermost op, ignoring regions of the program."""
    library = (name for name in product.work.ops if name.startswith(("aten::", "autograd::")))
    return next(library, product.work.op)
