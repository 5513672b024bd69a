"""Kernels that write to local memory, by samples: they write more than all tensors hold."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, l2_bytes
from fathom.diagnosis.signals import Family, Signals
from fathom.units import MB

SHARE = 0.03  # of the step
AGAIN = 2.0  # times all that is allocated, as for data that leaves the cache
HITS = 50.0  # percent of its loads: a thread's own memory was written shortly before
REACHED = 50.0  # percent of the issue slots, by a kernel that keeps its values in registers
NEEDED = ("dram_bytes", "dram", "dram_write", "l1_hit", "issue")


def spilling(signals: Signals, family: Family) -> Candidate | None:
    """Where the cache holds all tensors together, they are not what a launch writes to memory.

    Samples cannot tell local loads from others, so tensors that the cache does not hold hide spills.
    """
    large = family.ms >= SHARE * signals["step.timeline_ms"]
    allocated = signals.get("device.allocated_bytes").value
    cache = l2_bytes(signals)
    if not large or not allocated or not cache or allocated > cache or not _writes(family, AGAIN * allocated):
        return None
    return _candidate(family, allocated)


def _writes(family: Family, least: float) -> bool:
    """Whether it writes more than that, mostly what it does not read from memory, and loads what it wrote."""
    measures = family.measures
    if not measures.keys() >= set(NEEDED):
        return False
    mostly = measures["dram_write"] > measures["dram"] / 2  # an array of somebody else's is read, too
    return mostly and measures["l1_hit"] >= HITS and _written(family) > least


def _written(family: Family) -> float:
    """Bytes that one launch writes to memory."""
    measures = family.measures
    return measures["dram_bytes"] * measures["dram_write"] / measures["dram"] if measures["dram"] else 0.0


def _candidate(family: Family, allocated: float) -> Candidate:
    """Bound by its instructions, once they need not wait for memory."""
    measures = family.measures
    factor = min(measures["issue"] / REACHED, 1.0)
    return Candidate(
        kind="kernels-register-spills",
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("a launch writes to memory", _written(family) / MB, "MB"),
            Evidence("all tensors of the program take at most", allocated / MB, "MB"),
            Evidence("of its loads are found in L1", measures["l1_hit"], "%"),
            Evidence("of the issue slots are used", measures["issue"], "%"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.5,
        confidence=0.6,
        check=f"nvcc -Xptxas -v; fathom dive SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
