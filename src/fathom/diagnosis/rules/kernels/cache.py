"""Data that is evicted from L2 between passes: of one launch, and of in-place ops."""

from __future__ import annotations

import re

from fathom.diagnosis.grouping import summed
from fathom.diagnosis.rules.candidates import in_family, l2_bytes, rates_of, saving, site
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Chain, Family, Signals
from fathom.units import MB

AGAIN = 2.0  # times the allocated memory: rounding and the driver's memory may explain less
SHARE = 0.03  # of the step
PASSES = 4  # over one tensor: fewer are not worth splitting it into pieces
IN_PLACE = re.compile(r"aten::\w*[a-z]_$")
READS = 0.5  # of the bytes of an in-place pass
NARROW = 2  # bytes per element, at least
CACHED = 0.6  # time of a byte from L2 over one from memory, if the ceilings were not measured


@rule("kernels-l2-thrash")
def cache(signals: Signals) -> Outcomes:
    """Find in-place ops on tensors larger than L2, and launches that move more data than is allocated.

    If L2 holds all tensors, the traffic has another cause.
    """
    yield from _in_place(signals)
    step = signals["step.timeline_ms"]
    large = [family for family in signals["kernels.counted"] if family.name and family.ms >= SHARE * step]
    if large and not any("dram_bytes" in family.measures for family in large):
        yield NotAnalysed("its kernels have no value for dram_bytes")
    for family in large:
        read = family.measures.get("dram_bytes")
        if read is None:
            continue
        allocated = signals["device.allocated_bytes"]
        if read > AGAIN * allocated and allocated > l2_bytes(signals):
            yield _candidate(family, read, allocated, _cached(signals))


def _in_place(signals: Signals) -> Candidates:
    """Find chains of in-place ops that could process the tensor in pieces, each of which stays in L2."""
    l2 = l2_bytes(signals)
    chains = signals.get("kernels.chains").value or []
    mine = [chain for chain in chains if l2 and NARROW * chain.numel > l2 and _passes(chain)]
    if not mine:
        return
    longest = max(mine, key=lambda chain: chain.ms)
    yield saving(
        _saved(mine, _cached(signals)),
        signals,
        evidence=[
            Evidence(f"{len(longest.ops)} in-place passes over one tensor", longest.ms, "ms per step"),
            Evidence("elements in this tensor", float(longest.numel), ""),
            Evidence("size of L2", l2 / MB, "MB"),
        ],
        doubt=0.4,
        confidence=0.6,
        check="apply all passes to one piece that fits into L2, then to the next, or fuse them",
        **site(mine, "source", "module"),
    )


def _passes(chain: Chain) -> bool:
    return len(chain.ops) >= PASSES and all(IN_PLACE.search(name) for name in chain.ops)


def _saved(mine: list[Chain], cached: float) -> dict[str, float]:
    """Return the savings by family: reads after the first pass. Writes still go to memory."""
    parts = [READS * (1 - 1 / len(chain.ops)) * chain.ms / (chain.saved_ms or 1.0) for chain in mine]
    return summed(
        (family, (1 - cached) * part * ms)
        for chain, part in zip(mine, parts, strict=True)
        for family, ms in chain.saved.items()
    )


def _cached(signals: Signals) -> float:
    """Return the ratio of the times to read a byte from L2 and from memory."""
    rates = rates_of(signals)
    return min(rates["memory"] / rates["cache"], 1.0) if {"memory", "cache"} <= rates.keys() else CACHED


def _candidate(family: Family, read: float, allocated: float, cached: float) -> Candidate:
    """Return the candidate for a family: all passes but the first would read from L2."""
    factor = allocated / read + (1 - allocated / read) * cached
    evidence = [
        Evidence("DRAM traffic of a launch", read / MB, "MB"),
        Evidence("peak size of all tensors", allocated / MB, "MB"),
        Evidence("time of this family", family.ms, "ms per step"),
    ]
    look = "fathom kernel"
    return in_family(family, factor, evidence, doubt=0.4, confidence=0.8, check=look)
