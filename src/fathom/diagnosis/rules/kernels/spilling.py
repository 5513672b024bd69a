"""Kernels that spill registers to local memory, recognised by sampled counters."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, l2_bytes
from fathom.diagnosis.signals import Family, Signals
from fathom.units import MB

SHARE = 0.03  # of the step
AGAIN = 2.0  # times the allocated memory, as for data evicted from L2
HITS = 50.0  # percent of its loads hit L1: a thread wrote its local memory shortly before
REACHED = 50.0  # percent of the issue slots, by a kernel without spills
NEEDED = ("dram_bytes", "dram", "dram_write", "l1_hit", "issue")


def spilling(signals: Signals, family: Family) -> Candidate | None:
    """Find writes to DRAM by a program whose tensors all fit into L2: they are spills.

    Samples do not distinguish local loads from others, so tensors that exceed L2 hide spills.
    """
    large = family.ms >= SHARE * signals["step.timeline_ms"]
    allocated = signals.get("device.allocated_bytes").value
    cache = l2_bytes(signals)
    if not large or not allocated or not cache or allocated > cache or not _writes(family, AGAIN * allocated):
        return None
    return _candidate(family, allocated)


def _writes(family: Family, least: float) -> bool:
    """Whether it writes more than `least`, writes more than it reads, and loads what it wrote."""
    measures = family.measures
    if not measures.keys() >= set(NEEDED):
        return False
    mostly = measures["dram_write"] > measures["dram"] / 2  # data of another library would be read, too
    return mostly and measures["l1_hit"] >= HITS and _written(family) > least


def _written(family: Family) -> float:
    """Bytes that one launch writes to DRAM."""
    measures = family.measures
    return measures["dram_bytes"] * measures["dram_write"] / measures["dram"] if measures["dram"] else 0.0


def _candidate(family: Family, allocated: float) -> Candidate:
    """The candidate: without spills the kernel is bound by its instructions."""
    measures = family.measures
    factor = min(measures["issue"] / REACHED, 1.0)
    return Candidate(
        kind="kernels-register-spills",
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("DRAM writes of a launch", _written(family) / MB, "MB"),
            Evidence("peak size of all tensors", allocated / MB, "MB"),
            Evidence("L1 hit rate of its loads", measures["l1_hit"], "%"),
            Evidence("issue slots used", measures["issue"], "%"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.5,
        confidence=0.6,
        check=f"nvcc -Xptxas -v; fathom dive SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
