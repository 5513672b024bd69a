"""Contended atomics: ops and kernels that add many elements to few places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.rules.kernels.contended import contended
from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    Outcomes,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals, Work
from fathom.units import MS_PER_S

ADDS = re.compile(r"aten::(index_add_?|scatter_add_?|scatter_reduce_?|index_reduce_?|histc|bincount)$")
SORTED = re.compile(r"sort|scan|unique", re.IGNORECASE)  # these kernels avoid atomics
MEET = 32  # additions per place: with fewer, they rarely collide
SLOW = 3.0  # times the time of its bytes: below it, the additions overlap with reading
REACHED = 0.5  # of the memory ceiling, by kernels without atomics


@rule("kernels-atomics")
def atomics(signals: Signals) -> Outcomes:
    """Find ops much slower than reading their input, then kernels whose counters show contention."""
    works = signals["kernels.work"]
    adding = [work for work in works if _adds(work)]
    if adding:
        yield from _ops(signals, works, adding)
    yield from contended(signals, but={work.family for work in adding})


def _ops(signals: Signals, works: Sequence[Work], adding: Sequence[Work]) -> Candidates:
    memory = signals["kernels.ceilings"].get("memory")
    needs = {id(work): need for work in adding if (need := _need_ms(work, memory)) is not None}
    mine = [work for work in adding if work.ms > SLOW * needs.get(id(work), work.ms)]
    if not mine:
        return
    now, needed = sum(work.ms for work in mine), sum(needs[id(work)] for work in mine)
    factor = min(needed / REACHED / now, 1.0)
    yield Candidate(
        kind="kernels-atomics",
        claims=claims_of(mine, 1 - factor),
        evidence=[
            Evidence("time of ops that add many elements to few places", now, "ms per step"),
            Evidence("additions per place", max(map(_meeting, mine)), ""),
            Evidence("time to read their input", needed, "ms per step"),
        ],
        changes=shrink(mine, family_totals(works), factor),
        doubt=0.2,
        confidence=0.85,
        check="a product with one-hot labels, or partial sums per block first, and time the step",
        **site(mine, "source", "module", "region", "family"),
    )


def _adds(work: Work) -> bool:
    """Whether it adds many elements to each place."""
    adds = any(ADDS.search(name) for name in work.ops) and not SORTED.search(work.family)
    return adds and _meeting(work) >= MEET


def _need_ms(work: Work, memory: float | None) -> float | None:
    """Milliseconds to read its largest input; None if the memory ceiling is unknown."""
    if not memory:
        return None
    types = [SIZE.get(DTYPES.get(name, ""), 0.0) for name in work.types]
    largest = max(count * size for count, size in zip(map(_numbers, work.sizes), types, strict=False))
    return MS_PER_S * work.count * largest / memory


def _meeting(work: Work) -> float:
    """Elements added per place; the first input holds the places."""
    places = _numbers(work.sizes[0]) if work.sizes else 0
    return max(map(_numbers, work.sizes)) / places if places else 0.0


def _numbers(sizes: list[int]) -> int:
    return prod(sizes) if sizes else 0
