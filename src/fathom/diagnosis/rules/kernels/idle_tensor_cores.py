"""Products that tensor cores could do: written as sums, or with operands that their kernels do not take."""

from __future__ import annotations

import re
from math import ceil, prod

from fathom.analysis.entries import Entry
from fathom.analysis.work import DTYPES
from fathom.diagnosis.rules.numbers.odd_sizes import WORD
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

KIND = "kernels-tensor-cores-idle"
TILE = 128  # rows and columns that a multiprocessor takes of a product, by the library's usual choice
DEEP = 512  # numbers along the depth: less, and reading operands sets the time
FAR = 0.4  # of the ceiling: what has tensor cores and full tiles does better
REACHED = 0.75  # of it by those
FLOOR = 0.02  # of the time of a product written as sums: its operands are still read
GROWS = 8  # times larger than the factors is what they are multiplied to
KNOWN = 0.99  # of the time of ops with shapes
SUMMED = re.compile(r"aten::(sum|mean)$")


@rule(KIND)
def idle_tensor_cores(signals: Signals) -> Found:
    """The two are told apart: one is no product at all to the profiler."""
    works, rates = signals["kernels.work"], signals.get("kernels.ceilings").value or {}
    sums = as_sums(works)
    if sums:
        says = "multiplying all pairs, and summing"
        yield _candidate(sums, FLOOR, says, "a @ b.T instead, and time the step", works)
    places = signals.get("device.multiprocessors").value
    alike = places and _alike(works)
    slow = [one for one in signals["numbers.products"] if alike and _slow(one, rates, places)]
    if slow:
        now = sum(one.work.ms for one in slow)
        factor = min(sum(_need_ms(one, rates) or 0.0 for one in slow) / REACHED / now, 1.0)
        says = "products of sizes that suit, far below the ceiling of tensor cores"
        check = "let operands begin at multiples of 16 bytes (contiguous()), and time the step"
        yield _candidate([one.work for one in slow], factor, says, check, works)


def _alike(works: list[Work]) -> bool:
    """Whether steps have one shape: otherwise kernels of the timeline find no shapes, or another step's."""
    told = [one for one in works if one.entry == Entry.COMPUTE and one.op]
    return sum(one.ms for one in told if one.shapes) >= KNOWN * sum(one.ms for one in told)


def as_sums(works: list[Work]) -> list[Work]:
    """Broadcast multiplications to something much larger than either factor, and sums over that."""
    made = {size for one in works if one.op == "aten::mul" and (size := _outer(one))}
    if not any(SUMMED.search(name) and _numbers(one) in made for one in works for name in one.ops):
        return []
    return [one for one in works if one.entry == Entry.COMPUTE and ({_outer(one), _numbers(one)} & made)]


def _outer(one: Work) -> int:
    """How many numbers two factors that are broadcast against each other make; 0 for other ops."""
    if len(one.sizes) < 2 or len(one.sizes[0]) != len(one.sizes[1]):
        return 0
    first, second = one.sizes[:2]
    pairs = list(zip(first, second, strict=True))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return 0
    made = prod(max(pair) for pair in pairs)
    return made if made >= GROWS * max(prod(first), prod(second)) else 0


def _numbers(one: Work) -> int:
    return max((prod(sizes) for sizes in one.sizes if sizes), default=0)


def _slow(one: Product, rates: dict[str, float], places: int) -> bool:
    """Large, aligned, of a narrow type, and still slow."""
    word = WORD.get(one.dtype, 0)
    if one.dtype == "fp32" or not word or any(size % word for size in (one.m, one.n, one.k)):
        return False
    full = one.batch * ceil(one.m / TILE) * ceil(one.n / TILE) >= places and one.k >= DEEP
    need = _need_ms(one, rates)
    return full and need is not None and need < FAR * one.work.ms


def _need_ms(one: Product, rates: dict[str, float]) -> float | None:
    rate = rates.get(f"matmul.{one.dtype}")
    return 2e3 * one.batch * one.m * one.n * one.k * one.work.count / rate if rate else None


def _candidate(mine: list[Work], factor: float, says: str, check: str, works: list[Work]) -> Candidate:
    types = sorted({DTYPES.get(name, name) for one in mine for name in one.types[:1]} - {""})
    return Candidate(
        kind=KIND,
        claims=claims_of(mine, 1 - factor),
        evidence=[
            Evidence(
                f"{says}, in {', '.join(types) or 'unknown types'}", sum(one.ms for one in mine), "ms a step"
            ),
            Evidence("of that time tensor cores would need", 100 * factor, "%"),
        ],
        changes=shrink(mine, family_totals(works), factor),
        doubt=0.2,
        confidence=0.8,
        check=check,
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        region=usual((one.region, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )
