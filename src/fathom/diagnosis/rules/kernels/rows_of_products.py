"""Matmuls with so few rows that reading weights takes longer than the arithmetic."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.analysis.work import SIZE
from fathom.diagnosis.grouping import grouped, summed
from fathom.diagnosis.rules.candidates import LAUNCHING, count_of, mended, ms_of, rates_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals, Work
from fathom.units import MS_PER_S

ONE_TOKEN, FEW_TOKENS = 1, 16  # rows of one decoded request; of a few requests
FEW = 512  # rows: with fewer, some multiprocessors have no tile
DEEP = 512  # a weight's smaller side: below it, the layer is small
MOSTLY = 0.6  # of the products' time
LEAST = 0.1  # of the step
REACHED = 0.6  # of the ceiling, by products that fill the device
HALF = 0.5  # of the time with weights of half the bytes
SHORT = 5e-3  # milliseconds: shorter kernels hardly take longer with more rows
ACCUMULATES = "torch::autograd::AccumulateGrad"


@rule("kernels-weight-bound-decode", "kernels-batch-too-small")
def few_rows(signals: Signals) -> Candidates:
    """Find decoding, training or scoring with few rows, depending on the rows and the backward pass.

    If every layer runs several times in a step, more rows could be computed at once.
    """
    products = [product for product in signals["numbers.products"] if product.batch == 1]
    step, every = signals["step.timeline_ms"], ms_of(product.work for product in products)
    rows, again = _rows(products), times(products)
    trains = any(product.work.backward for product in products)
    kind = _kind(rows, again, trains)
    if kind is None or rows is None:
        return
    with_rows = (product for product in products if rows in product.sides)
    few = [product for product in with_rows if _weight(product, rows) >= DEEP]
    ms = ms_of(product.work for product in few)
    if ms < max(MOSTLY * every, LEAST * step if again == 1 else 0.0):
        return
    factor = _filled(few, ms, rates_of(signals), again) if trains or again > 1 else HALF
    yield _candidate(signals, kind, few, rows, again, factor)


def _kind(rows: int | None, again: int, trains: bool) -> str | None:
    if rows is None or rows > FEW:
        return None
    if trains:
        return "kernels-batch-too-small"
    if rows <= (FEW_TOKENS if again > 1 else ONE_TOKEN):
        return "kernels-weight-bound-decode"
    return "kernels-batch-too-small" if again > 1 else None


def times(products: list[Product]) -> int:
    """Return the forward runs of a layer per step, for most of the matmul time; 1 if no layer has a name."""
    forward = (product for product in products if product.work.module and not product.work.backward)
    layers = grouped(forward, lambda product: (product.work.module, product.n, product.k)).values()
    works = [[product.work for product in layer] for layer in layers]
    weight = summed((round(count_of(layer)), ms_of(layer)) for layer in works)
    return max(1, *(count for count in weight if weight[count] == max(weight.values()))) if weight else 1


def _rows(products: list[Product]) -> int | None:
    """Return the rows of most forward matmuls; a backward matmul may have them as any of its sizes."""
    weight = summed((product.m, product.work.ms) for product in products if not product.work.backward)
    return max(weight, key=lambda rows: weight[rows], default=None)


def _weight(product: Product, rows: int) -> int:
    """Return the smaller dimension of the weight."""
    sides = list(product.sides)
    sides.remove(rows)
    return min(sides)


def _filled(few: list[Product], ms: float, rates: dict[str, float], again: int) -> float:
    """Return the share of the time for all rows of a step at once: arithmetic, or one read of each weight.

    It is one half if no ceiling is known and layers run once.
    """
    memory, needed = rates.get("memory"), 0.0
    for product in few:
        rate = product.ceiling(rates)
        if not rate or ms <= 0:
            return 1 / again if again > 1 else HALF
        size = SIZE[product.dtype] * product.m * product.n * product.k / min(product.sides)
        read = product.work.count * size / again / memory if memory and again > 1 else 0.0
        needed += MS_PER_S * max(product.flops / rate, read)
    return min(needed / REACHED / ms, 1.0)


def _around(works: list[Work], few: list[Product], again: int) -> list[Work]:
    """Return short kernels and gradient accumulation that repeat with the matmuls but would not grow."""
    mine = {id(product.work) for product in few}
    often = (work for work in works if work.entry == Entry.COMPUTE and work.count >= again / 2)
    others = (work for work in often if id(work) not in mine)
    return [work for work in others if work.ms < SHORT * work.count or ACCUMULATES in work.path]


def _candidate(
    signals: Signals, kind: str, few: list[Product], rows: int, again: int, factor: float
) -> Candidate:
    products, repeated = [product.work for product in few], again > 1
    around = _around(signals["kernels.work"], few, again) if repeated else []
    return mended(
        signals,
        (products, factor),
        (around, 1 / again),
        kind=kind,
        host=[
            f"{entry}={1 / again:.6f}" for entry in ("dispatching", "python", "launch-latency") if repeated
        ],
        evidence=[
            Evidence(f"matmuls with {rows} rows", ms_of(products), "ms per step"),
            Evidence("runs of each layer", float(again), "per step"),
            Evidence("share of this time that full tiles would take", 100 * factor, "%"),
        ],
        spill=LAUNCHING if repeated else (),
        general=repeated,  # loops over small products, say, explain their launches
        doubt=0.15 if repeated else 0.5,
        confidence=0.8 if repeated else 0.7,
        check="double the batch, and compare the step",
    )
