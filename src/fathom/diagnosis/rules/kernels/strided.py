"""Kernels that fetch more from L2 than their loads return to registers, by samples of counters."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence
from fathom.diagnosis.signals import Family, Signals

SHARE = 0.02  # of the step
USED = 50.0  # percent of what comes back: a coalesced load uses all of it
BOUND = 50.0  # percent of memory's bandwidth: below, it is not what is fetched that takes the time
LIBRARY = re.compile(r"gemm|nvjet|cutlass|flash|fmha|cudnn|xmma|ncclDev")
NEEDED = ("received_use", "dram", "dram_read", "shared_per_block")


def strided(signals: Signals, family: Family) -> Candidate | None:
    """Without shared memory, data from L2 that no load returns is wasted."""
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
    """The same rate of memory, without the wasted data; writes stay."""
    measures = family.measures
    wasted = 1 - measures["received_use"] / 100
    factor = 1 - min(measures["dram_read"] / measures["dram"], 1.0) * wasted
    return Candidate(
        kind="kernels-uncoalesced",
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("of what comes back from L2 loads return to registers", measures["received_use"], "%"),
            Evidence("of memory's bandwidth is used", measures["dram"], "%"),
            Evidence("it takes", family.ms, "ms a step"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.5,
        confidence=0.75,
        check=f"fathom dive SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
