"""Data that leaves the cache between passes: of one launch, and of ops that work in place."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Claim,
    Evidence,
    NotAnalysed,
    Outcomes,
    family_totals,
    l2_bytes,
    rule,
    site,
)
from fathom.diagnosis.signals import Chain, Family, Signals
from fathom.units import MB

AGAIN = 2.0  # times all that is allocated: by less, rounding and what the driver holds may explain it
SHARE = 0.03  # of the step
PASSES = 4  # over one tensor: fewer are hardly worth cutting it into pieces
IN_PLACE = re.compile(r"aten::\w*[a-z]_$")
READS = 0.5  # of the bytes of a pass in place
NARROW = 2  # bytes of a number at least
CACHED = 0.6  # of the time of a byte from memory, from the cache, where neither was measured


@rule("kernels-l2-thrash")
def cache(signals: Signals) -> Outcomes:
    """Ops that pass in place over more than the cache holds; launches that move more than there is.

    What the cache holds as a whole does not leave it: what moves then is no tensor.
    """
    yield from _in_place(signals)
    step = signals["step.timeline_ms"]
    large = [family for family in signals["kernels.counted"] if family.name and family.ms >= SHARE * step]
    if large and not any("dram_bytes" in family.measures for family in large):
        yield NotAnalysed("kernels-l2-thrash", "its kernels have no value for dram_bytes")
    for family in large:
        read = family.measures.get("dram_bytes")
        if read is None:
            continue
        allocated = signals["device.allocated_bytes"]
        if read > AGAIN * allocated and allocated > l2_bytes(signals):
            yield _candidate(family, read, allocated, _cached(signals))


def _in_place(signals: Signals) -> Candidates:
    """Each piece of such a tensor could go through all of them while the cache holds it."""
    cache_bytes = l2_bytes(signals)
    chains = signals.get("kernels.chains").value or []
    mine = [
        chain for chain in chains if cache_bytes and NARROW * chain.numel > cache_bytes and _passes(chain)
    ]
    if not mine:
        return
    saved, total = _saved(mine, _cached(signals)), family_totals(signals["kernels.work"])
    longest = max(mine, key=lambda work: work.ms)
    yield Candidate(
        kind="kernels-l2-thrash",
        claims=[Claim(Entry.COMPUTE, family, ms) for family, ms in saved.items()],
        evidence=[
            Evidence(f"{len(longest.ops)} passes in place over one tensor", longest.ms, "ms a step"),
            Evidence("numbers in it", float(longest.numel), ""),
            Evidence("the cache holds", cache_bytes / MB, "MB"),
        ],
        changes=tuple(
            f"family:{family}={max(1 - ms / total[family], 0):.6f}"
            for family, ms in saved.items()
            if total.get(family)
        ),
        doubt=0.4,
        confidence=0.6,
        check="all passes over a piece that fits into the cache, then the next piece; or fuse them",
        **site(mine, "source", "module"),
    )


def _passes(chain: Chain) -> bool:
    return len(chain.ops) >= PASSES and all(IN_PLACE.search(name) for name in chain.ops)


def _saved(mine: list[Chain], cached: float) -> dict[str, float]:
    """By family: reads after the first pass; what is written goes to memory all the same."""
    saved: dict[str, float] = {}
    for chain in mine:
        part = READS * (1 - 1 / len(chain.ops)) * (1 - cached) * chain.ms / (chain.saved_ms or 1.0)
        for family, ms in chain.saved.items():
            saved[family] = saved.get(family, 0.0) + part * ms
    return saved


def _cached(signals: Signals) -> float:
    """Of the time of a byte from memory, from the cache."""
    rates = signals.get("kernels.ceilings").value or {}
    return min(rates["memory"] / rates["cache"], 1.0) if {"memory", "cache"} <= rates.keys() else CACHED


def _candidate(family: Family, read: float, allocated: float, cached: float) -> Candidate:
    """All but the first pass from the cache."""
    factor = allocated / read + (1 - allocated / read) * cached
    return Candidate(
        kind="kernels-l2-thrash",
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("a launch moves through memory", read / MB, "MB"),
            Evidence("all tensors of the program take at most", allocated / MB, "MB"),
            Evidence("it takes", family.ms, "ms a step"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.4,
        confidence=0.8,
        check=f"fathom kernel SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
