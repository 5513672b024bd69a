"""Costs around attention: materialised masks and copied caches."""

from __future__ import annotations

import json
import re

from fathom.diagnosis.rules.kernels.attending import needed_ms
from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals, Work

# Position of the mask among the arguments of each fused op: forward, backward (native_functions.yaml).
PLACES = {"_efficient_attention": (3, 4), "cudnn_attention": (3, 8), "_fused_attention_overrideable": (3, 4)}
PRODUCTS = re.compile("fmha|flash|sdpa")  # kernels that compute attention; others prepare or round
PAIRS = 64 * 64  # queries times keys: a smaller mask costs nothing
HALF = 0.5  # of the scores are skipped with is_causal, or by blocks of flex_attention
GROWS = 4  # times longer than the appended part: then it is a cache
CHECK = {
    "kernels-materialised-mask": "is_causal=True or flex_attention, and time the step",
    "kernels-kv-cache-concat": "preallocate the cache and write it in place, and time the step",
}


@rule(*CHECK)
def attention(signals: Signals) -> Candidates:
    """Find masks among the inputs of fused attention, and concatenations that append to a cache."""
    works = signals["kernels.work"]
    total, rates = family_totals(works), signals.get("kernels.ceilings").value or {}
    masked = [work for work in works if _masked(work)]
    grown = [work for work in works if work.op == "aten::cat" and grows(work.shapes)]
    if masked:
        factor = _without_mask(masked, rates)
        yield _candidate(
            "kernels-materialised-mask", masked, factor, "attention kernels that read a mask", total
        )
    if grown:
        says = "copying a cache to append to it"
        yield _candidate("kernels-kv-cache-concat", grown, 0.05, says, total)


def _masked(work: Work) -> bool:
    """Whether the mask has an entry for each pair of query and key; a padding mask has only one per key."""
    places = next((PLACES[name] for name in PLACES if name in work.path), None)
    if places is None:
        return False
    place = places["backward" in work.path.lower()]
    mask = work.sizes[place] if len(work.sizes) > place else []
    return len(mask) >= 2 and min(mask[-2:]) > 1 and mask[-2] * mask[-1] >= PAIRS


def _without_mask(masked: list[Work], rates: dict[str, float]) -> float:
    """Share of the time without the mask: half of the FLOPs at the usual rate, or half of the time."""
    now = sum(work.ms for work in masked)
    needs = [needed_ms(work, rates, causal=True) for work in masked if PRODUCTS.search(work.family)]
    known = [need for need in needs if need is not None]
    return min(sum(known) / now, HALF) if now > 0 and known and len(known) == len(needs) else HALF


def grows(shapes: str | None) -> bool:
    """Whether these are the shapes of a cache and of the part appended to it."""
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
            Evidence(says, sum(work.ms for work in mine), "ms per step"),
            Evidence("number of these kernels", sum(work.count for work in mine), "per step"),
        ],
        changes=shrink(mine, total, factor),
        doubt=0.2,
        check=CHECK[kind],
        **site(mine, "source", "module", "region", "family"),
    )
