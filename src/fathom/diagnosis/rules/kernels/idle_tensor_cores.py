"""Matmuls that do not use tensor cores well: written as sums, or with misaligned operands."""

from __future__ import annotations

import re
from math import ceil, prod

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import PLACE, mended, ms_of, rates_of, types_of
from fathom.diagnosis.rules.device.condition import interrupted
from fathom.diagnosis.rules.numbers.sizes import WORD
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Product, Signals, Work
from fathom.units import MS_PER_S

TILE = 128  # rows and columns of the library's usual tile
DEEP = 512  # depth (k): below it, reading operands dominates
FAR = 0.4  # of the ceiling: tensor cores with full tiles reach more
REACHED = 0.75  # of the ceiling, by tensor cores with full tiles
FLOOR = 0.02  # of the time of a product written as sums: its operands are still read
GROWS = 8  # size of the broadcast result over that of its factors
KNOWN = 0.99  # of the ops' time with known shapes
SUMMED = re.compile(r"aten::(sum|mean)$")


@rule("kernels-tensor-cores-idle")
def idle_tensor_cores(signals: Signals) -> Candidates:
    """Find matmuls written as sums, and matmuls far below the tensor core ceiling."""
    works, rates = signals["kernels.work"], rates_of(signals)
    sums = as_sums(works)
    if sums:
        says = "multiplying all pairs and summing them"
        yield _candidate(signals, sums, FLOOR, says, "a @ b.T instead, and time the step")
    places = signals.get("device.multiprocessors").value
    alike = places and _alike(works) and not interrupted(signals)
    slow = [product for product in signals["numbers.products"] if alike and _slow(product, rates, places)]
    if slow:
        mine = [product.work for product in slow]
        factor = min(sum(_need_ms(product, rates) or 0.0 for product in slow) / REACHED / ms_of(mine), 1.0)
        says = "matmuls of aligned sizes far below the tensor core ceiling"
        check = "align operands to 16 bytes (contiguous()), and time the step"
        yield _candidate(signals, mine, factor, says, check)


def _alike(works: list[Work]) -> bool:
    """Return whether all steps have the same shapes; else timeline kernels have none, or wrong ones."""
    with_op = [work for work in works if work.entry == Entry.COMPUTE and work.op]
    return ms_of(work for work in with_op if work.shapes) >= KNOWN * ms_of(with_op)


def as_sums(works: list[Work]) -> list[Work]:
    """Return broadcast multiplications with results much larger than both factors, and the sums over them."""
    made = {size for work in works if work.op == "aten::mul" and (size := _outer(work))}
    if not any(SUMMED.search(name) and _numbers(work) in made for work in works for name in work.ops):
        return []
    return [work for work in works if work.entry == Entry.COMPUTE and ({_outer(work), _numbers(work)} & made)]


def _outer(work: Work) -> int:
    """Return the number of elements in the broadcast product of two factors; 0 for other ops."""
    if len(work.sizes) < 2 or len(work.sizes[0]) != len(work.sizes[1]):
        return 0
    first, second = work.sizes[:2]
    pairs = list(zip(first, second, strict=True))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return 0
    made = prod(max(pair) for pair in pairs)
    return made if made >= GROWS * max(prod(first), prod(second)) else 0


def _numbers(work: Work) -> int:
    return max((prod(sizes) for sizes in work.sizes if sizes), default=0)


def _slow(product: Product, rates: dict[str, float], places: int) -> bool:
    """Return whether the matmul is slow although it is large, aligned and has a narrow dtype."""
    word = WORD.get(product.dtype, 0)
    if product.dtype == "fp32" or not word or any(size % word for size in product.sides):
        return False
    full = product.batch * ceil(product.m / TILE) * ceil(product.n / TILE) >= places and product.k >= DEEP
    need = _need_ms(product, rates)
    return full and need is not None and need < FAR * product.work.ms


def _need_ms(product: Product, rates: dict[str, float]) -> float | None:
    rate = product.ceiling(rates)
    return MS_PER_S * product.flops / rate if rate else None


def _candidate(signals: Signals, mine: list[Work], factor: float, says: str, check: str) -> Candidate:
    return mended(
        signals,
        (mine, factor),
        place=PLACE,
        evidence=[
            Evidence(f"{says}, in {types_of(mine)}", ms_of(mine), "ms per step"),
            Evidence("share of this time that tensor cores would take", 100 * factor, "%"),
        ],
        confidence=0.8,
        check=check,
    )
