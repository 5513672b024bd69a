"""Contended atomics: ops that add many elements to few addresses, and kernels whose warps wait for L2."""

from __future__ import annotations

import re
from collections.abc import Collection
from math import prod

from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.rules.candidates import PLACE, in_family, mended, ms_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Family, Signals, Work
from fathom.units import MS_PER_S

ADDS = re.compile(r"aten::(index_add_?|scatter_add_?|scatter_reduce_?|index_reduce_?|histc|bincount)$")
SORTED = re.compile(r"sort|scan|unique", re.IGNORECASE)  # these kernels avoid atomics
MEET = 32  # additions per place: with fewer, they rarely collide
SLOW = 3.0  # times the time of its bytes: below it, the additions overlap with reading
REACHED = (
    0.5  # of the memory ceiling, by kernels without atomics; of the nearest, if they add in registers first
)
NEEDED = ("occupancy", "l1_to_l2", "l1_from_l2")
SHARE = 0.03  # of the step
OCCUPIED = 50.0  # percent occupancy: above it, the low utilisation is not due to a lack of warps
IDLE = 0.1  # of the nearest ceiling
SENT = 0.1  # percent: below it, the warps do not wait for L2
UNANSWERED = 5.0  # requests over responses; loads need at most two requests per sector


@rule("kernels-atomics")
def atomics(signals: Signals) -> Outcomes:
    """Find ops much slower than reading their input, then kernels whose counters show contention."""
    adding = [work for work in signals["kernels.work"] if _adds(work)]
    if adding:
        yield from _ops(signals, adding)
    yield from _contended(signals, {work.family for work in adding})


def _ops(signals: Signals, adding: list[Work]) -> Candidates:
    memory = signals["kernels.ceilings"].get("memory")
    needs = {id(work): need for work in adding if (need := _need_ms(work, memory)) is not None}
    mine = [work for work in adding if work.ms > SLOW * needs.get(id(work), work.ms)]
    if not mine:
        return
    now, needed = ms_of(mine), sum(needs[id(work)] for work in mine)
    yield mended(
        signals,
        (mine, min(needed / REACHED / now, 1.0)),
        place=PLACE,
        evidence=[
            Evidence("time of ops that add many elements to few addresses", now, "ms per step"),
            Evidence("additions per address", max(map(_meeting, mine)), ""),
            Evidence("time to read their input", needed, "ms per step"),
        ],
        confidence=0.85,
        check="use a matmul with one-hot labels, or sum per block first, and time the step",
    )


def _adds(work: Work) -> bool:
    """Return whether the op adds many elements to each address."""
    adds = any(ADDS.search(name) for name in work.ops) and not SORTED.search(work.family)
    return adds and _meeting(work) >= MEET


def _need_ms(work: Work, memory: float | None) -> float | None:
    """Return the milliseconds needed to read the largest input; None if the memory ceiling is unknown."""
    if not memory:
        return None
    types = [SIZE.get(DTYPES.get(name, ""), 0.0) for name in work.types]
    largest = max(count * size for count, size in zip(map(_numbers, work.sizes), types, strict=False))
    return MS_PER_S * work.count * largest / memory


def _meeting(work: Work) -> float:
    """Return the elements added per address; the first input holds the addresses."""
    places = _numbers(work.sizes[0]) if work.sizes else 0
    return max(map(_numbers, work.sizes)) / places if places else 0.0


def _numbers(sizes: list[int]) -> int:
    return prod(sizes) if sizes else 0


def _contended(signals: Signals, but: Collection[str]) -> Outcomes:
    """Find resident warps that use little and send requests to L2 without responses: serialised atomics.

    Families named in `but` are skipped; without counters the kind is not analysed.
    """
    counted = signals.get("kernels.counted")
    if counted.value is None:
        yield NotAnalysed(counted.why)
        return
    least = SHARE * signals["step.timeline_ms"]
    large = [family for family in counted.value if family.name not in but and family.ms >= least]
    measured = [
        family for family in large if family.used is not None and family.measures.keys() >= set(NEEDED)
    ]
    yield from (_waiting(family) for family in measured if _queues(family))
    if large and not measured:
        yield NotAnalysed(f"its kernels have no value for {', '.join(NEEDED)}")


def _queues(family: Family) -> bool:
    sent, answered = family.measures["l1_to_l2"], family.measures["l1_from_l2"]
    idle = (family.used or 0.0) <= IDLE and family.measures["occupancy"] >= OCCUPIED
    return idle and sent >= SENT and sent > UNANSWERED * answered


def _waiting(family: Family) -> Candidate:
    used, measures = family.used or 0.0, family.measures
    evidence = [
        Evidence("occupancy: resident warps, which are waiting", measures["occupancy"], "%"),
        Evidence("utilisation of the nearest ceiling", 100 * used, "%"),
        Evidence("share of time with requests sent to L2", measures["l1_to_l2"], "%"),
        Evidence("utilisation of the return path from L2", measures["l1_from_l2"], "%"),
    ]
    return in_family(family, min(used / REACHED, 1.0), evidence, doubt=0.3, confidence=0.7)
