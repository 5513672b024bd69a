"""Products of so few rows that weights, not arithmetic, set their time."""

from __future__ import annotations

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
from fathom.diagnosis.signals import Product, Signals

ONE_TOKEN = 16  # rows: of a request that is decoded, or of a few
FEW = 512  # rows: fewer leave multiprocessors without tiles
DEEP = 512  # a weight's smaller side: less, and the layer itself is small
MOSTLY = 0.6  # of the products' time
LEAST = 0.1  # of the step
REACHED = 0.6  # of the ceiling by products that fill the device
HALF = 0.5  # of its time with weights of half the bytes
BACKWARD = "autograd::"


@rule("kernels-weight-bound-decode", "kernels-batch-too-small")
def few_rows(signals: Signals) -> Found:
    """Without a backward pass it is decoding; with one, the batch is small."""
    products = [one for one in signals["numbers.products"] if one.batch == 1]
    step, every = signals["step.timeline_ms"], sum(one.work.ms for one in products)
    trains = any(one.work.path.startswith(BACKWARD) for one in products)
    most = FEW if trains else ONE_TOKEN
    rows = _rows(products)
    if rows is None or rows > most:
        return
    few = [one for one in products if rows in (one.m, one.n, one.k) and _weight(one, rows) >= DEEP]
    ms = sum(one.work.ms for one in few)
    if ms < max(MOSTLY * every, LEAST * step):
        return
    factor = _filled(few, ms, signals.get("kernels.ceilings").value or {}) if trains else HALF
    kind = "kernels-batch-too-small" if trains else "kernels-weight-bound-decode"
    yield _candidate(signals, kind, few, rows, factor)


def _rows(products: list[Product]) -> int | None:
    """Rows of most of the forward pass: a backward product may have them in any of its sizes."""
    weight: dict[int, float] = {}
    for one in products:
        if not one.work.path.startswith(BACKWARD):
            weight[one.m] = weight.get(one.m, 0.0) + one.work.ms
    return max(weight, key=lambda rows: weight[rows]) if weight else None


def _weight(one: Product, rows: int) -> int:
    """The smaller side of the weight."""
    sides = [one.m, one.n, one.k]
    sides.remove(rows)
    return min(sides)


def _filled(few: list[Product], ms: float, rates: dict[str, float]) -> float:
    """Of the time, at the usual share of the ceiling; half where no ceiling is known."""
    rated = [rates.get("matmul.tf32" if one.dtype == "fp32" else f"matmul.{one.dtype}") for one in few]
    if not all(rated) or ms <= 0:
        return HALF
    needs = [2e3 * o.m * o.n * o.k * o.work.count / (rate or 1) for o, rate in zip(few, rated, strict=True)]
    return min(sum(needs) / REACHED / ms, 1.0)


def _candidate(signals: Signals, kind: str, few: list[Product], rows: int, factor: float) -> Candidate:
    works = [one.work for one in few]
    return Candidate(
        kind=kind,
        claims=claims_of(works, 1 - factor),
        evidence=[
            Evidence(f"products of {rows} rows", sum(work.ms for work in works), "ms a step"),
            Evidence("of that time a full device would need", 100 * factor, "%"),
        ],
        changes=shrink(works, family_totals(signals["kernels.work"]), factor),
        doubt=0.5,
        confidence=0.7,
        check="double the batch, and compare the step",
        source=usual((work.source, work.ms) for work in works),
        module=usual((work.module, work.ms) for work in works),
        family=usual((work.family, work.ms) for work in works),
    )
