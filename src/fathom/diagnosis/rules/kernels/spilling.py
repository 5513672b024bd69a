"""Kernels that write to memory what no tensor holds, told by samples: local memory."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, l2_bytes
from fathom.diagnosis.signals import Family, Signals
from fathom.units import MB

SHARE = 0.03  # of the step
AGAIN = 2.0  # times all that is allocated, as for data that leaves the cache
FOUND = 50.0  # percent of its loads: a thread's own memory was written shortly before
REACHED = 50.0  # percent of the issue slots, by a kernel that keeps its values in registers
NEEDED = ("dram_bytes", "dram", "dram_write", "l1_hit", "issue")


def spilling(signals: Signals, family: Family) -> Candidate | None:
    """Where the cache holds all tensors together, they are not what a launch writes to memory.

    Samples cannot tell local loads from others, so tensors that the cache does not hold hide spills.
    """
    large = family.ms >= SHARE * signals["step.timeline_ms"]
    held = signals.get("device.allocated_bytes").value
    cache = l2_bytes(signals)
    if not large or not held or not cache or held > cache or not _writes(family, AGAIN * held):
        return None
    return _candidate(family, held)


def _writes(family: Family, least: float) -> bool:
    """Whether it writes more than that, mostly what it does not read from memory, and loads what it wrote."""
    told = family.measures
    if not told.keys() >= set(NEEDED):
        return False
    mostly = told["dram_write"] > told["dram"] / 2  # an array of somebody else's is read, too
    return mostly and told["l1_hit"] >= FOUND and _written(family) > least


def _written(family: Family) -> float:
    """Bytes that one launch writes to memory."""
    told = family.measures
    return told["dram_bytes"] * told["dram_write"] / told["dram"] if told["dram"] else 0.0


def _candidate(family: Family, held: float) -> Candidate:
    """Bound by its instructions, once they need not wait for memory."""
    told = family.measures
    factor = min(told["issue"] / REACHED, 1.0)
    return Candidate(
        kind="kernels-register-spills",
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("a launch writes to memory", _written(family) / MB, "MB"),
            Evidence("all tensors of the program take at most", held / MB, "MB"),
            Evidence("of its loads are found in L1", told["l1_hit"], "%"),
            Evidence("of the issue slots are used", told["issue"], "%"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.5,
        confidence=0.6,
        check=f"nvcc -Xptxas -v; fathom dive SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
