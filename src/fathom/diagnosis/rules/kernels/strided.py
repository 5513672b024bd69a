"""Kernels that fetch more from L2 than their loads use, recognised by sampled counters."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence
from fathom.diagnosis.signals import Family, Signals

SHARE = 0.02  # of the step
USED = 50.0  # percent of the fetched bytes: a coalesced load uses all of them
BOUND = 50.0  # percent of memory bandwidth: below it, the kernel is not memory-bound
LIBRARY = re.compile(r"gemm|nvjet|cutlass|flash|fmha|cudnn|xmma|ncclDev")
NEEDED = ("received_use", "dram", "dram_read", "shared_per_block")


def strided(signals: Signals, family: Family) -> Candidate | None:
    """Find kernels without shared memory that discard bytes fetched from L2."""
    large = family.ms >= SHARE * signals["step.timeline_ms"]
    return _candidate(family) if large and _wastes(family) else None


def _wastes(family: Family) -> bool:
    measures = family.measures
    if LIBRARY.search(family.name) or not measures.keys() >= set(NEEDED):
        return False
    return (
        not measures["shared_per_block"]
        and measures["dram"] >= BOUND
        and 0 <= measures["received_use"] < USED
    )


def _candidate(family: Family) -> Candidate:
    """The candidate: the same memory rate without the discarded bytes; writes stay."""
    measures = family.measures
    wasted = 1 - measures["received_use"] / 100
    factor = 1 - min(measures["dram_read"] / measures["dram"], 1.0) * wasted
    return Candidate(
        kind="kernels-uncoalesced",
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("share of bytes fetched from L2 that loads use", measures["received_use"], "%"),
            Evidence("memory bandwidth used", measures["dram"], "%"),
            Evidence("time of this family", family.ms, "ms per step"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.5,
        confidence=0.75,
        check=f"fathom dive SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
