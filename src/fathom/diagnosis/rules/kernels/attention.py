"""What surrounds attention: masks that are read, caches that are copied."""

from __future__ import annotations

import json

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
from fathom.diagnosis.signals import Signals, Work

MASKED = "_efficient_attention"
MASK, BEHIND = 3, 4  # the argument that holds it, forward and backward
HALF = 0.55  # of its time without a mask, which skips half of the scores
GROWS = 4  # times longer than what is added: a cache
CHECK = {
    "kernels-materialised-mask": "is_causal=True or flex_attention, and time the step",
    "kernels-kv-cache-concat": "a cache of full length that is written in place, and time the step",
}


@rule(*CHECK)
def attention(signals: Signals) -> Found:
    """Masks among the inputs of fused attention, and concatenations that add a little to much."""
    works = signals["kernels.work"]
    masked = [one for one in works if MASKED in one.path and _masked(one)]
    grown = [one for one in works if one.op == "aten::cat" and grows(one.shapes)]
    for kind, mine, factor, says in (
        ("kernels-materialised-mask", masked, HALF, "attention that reads a mask"),
        ("kernels-kv-cache-concat", grown, 0.05, "copying a cache to add a little to it"),
    ):
        if mine:
            yield _candidate(kind, mine, factor, says, family_totals(works))


def _masked(one: Work) -> bool:
    place = BEHIND if "backward" in one.path.lower() else MASK
    return len(one.sizes) > place and bool(one.sizes[place])


def grows(shapes: str | None) -> bool:
    """Whether these are the shapes of a concatenation of a cache and what is new in it."""
    try:
        parts = json.loads(shapes or "[]")[0]
        (old, new) = parts
        differing = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
        return len(old) >= 3 and len(differing) == 1 and differing[0][0] >= GROWS * differing[0][1] > 0
    except (ValueError, TypeError, IndexError, KeyError):
        return False


def _candidate(kind: str, mine: list[Work], factor: float, says: str, total: dict[str, float]) -> Candidate:
    return Candidate(
        kind=kind,
        claims=claims_of(mine, 1 - factor),
        evidence=[
            Evidence(says, sum(one.ms for one in mine), "ms a step"),
            Evidence("kernels of it", sum(one.count for one in mine), "a step"),
        ],
        changes=shrink(mine, total, factor),
        doubt=0.3,
        check=CHECK[kind],
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        region=usual((one.region, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )
