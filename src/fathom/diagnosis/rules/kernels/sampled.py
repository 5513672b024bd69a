"""Kernel flaws that sampled counters show: unused bytes, and spilled registers."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.candidates import in_family, l2_bytes
from fathom.diagnosis.rules.rule import Candidate, Evidence
from fathom.diagnosis.signals import Family, Signals
from fathom.units import MB

SHARE = 0.02  # of the step: smaller families of uncoalesced loads do not count
USED = 50.0  # percent of the fetched bytes: a coalesced load uses all of them
BOUND = 50.0  # percent of memory bandwidth: below it, the kernel is not memory-bound
LIBRARY = re.compile(r"gemm|nvjet|cutlass|flash|fmha|cudnn|xmma|ncclDev")
SPILLING_SHARE = 0.03  # of the step
AGAIN = 2.0  # times the allocated memory, as for data evicted from L2
HITS = 50.0  # percent of its loads hit L1: a thread wrote its local memory shortly before
REACHED = 50.0  # percent of the issue slots, by a kernel without spills
SAMPLED_NEEDS = {
    "kernels-uncoalesced": ("received_use", "dram", "dram_read", "shared_per_block"),
    "kernels-register-spills": ("dram_bytes", "dram", "dram_write", "l1_hit", "issue"),
}


def strided(signals: Signals, family: Family) -> Candidate | None:
    """Find kernels without shared memory that discard bytes fetched from L2.

    Once fixed, they read at the same rate without the discarded bytes, and write as before.
    """
    if family.ms < SHARE * signals["step.timeline_ms"] or not _wastes(family):
        return None
    measures = family.measures
    wasted = 1 - measures["received_use"] / 100
    factor = 1 - min(measures["dram_read"] / measures["dram"], 1.0) * wasted
    evidence = [
        Evidence("share of the bytes fetched from L2 that loads use", measures["received_use"], "%"),
        Evidence("memory bandwidth used", measures["dram"], "%"),
        Evidence("time of this family", family.ms, "ms per step"),
    ]
    return in_family(family, factor, evidence, kind="kernels-uncoalesced", doubt=0.5, confidence=0.75)


def _wastes(family: Family) -> bool:
    measures = family.measures
    if LIBRARY.search(family.name) or not measures.keys() >= set(SAMPLED_NEEDS["kernels-uncoalesced"]):
        return False
    bound = measures["dram"] >= BOUND and not measures["shared_per_block"]
    return bound and 0 <= measures["received_use"] < USED


def spilling(signals: Signals, family: Family) -> Candidate | None:
    """Find spills: writes to DRAM by a program whose tensors all fit into L2.

    Samples do not distinguish local loads from others, so tensors that exceed L2 hide spills. Without spills,
    the kernel is bound by its instructions.
    """
    large = family.ms >= SPILLING_SHARE * signals["step.timeline_ms"]
    allocated = signals.get("device.allocated_bytes").value
    if not large or not allocated or allocated > l2_bytes(signals) or not _writes(family, AGAIN * allocated):
        return None
    measures = family.measures
    evidence = [
        Evidence("DRAM writes of a launch", _written(family) / MB, "MB"),
        Evidence("peak size of all tensors", allocated / MB, "MB"),
        Evidence("L1 hit rate of its loads", measures["l1_hit"], "%"),
        Evidence("issue slots used", measures["issue"], "%"),
    ]
    factor, look = min(measures["issue"] / REACHED, 1.0), "nvcc -Xptxas -v; fathom dive"
    return in_family(
        family, factor, evidence, kind="kernels-register-spills", doubt=0.5, confidence=0.6, check=look
    )


def _writes(family: Family, least: float) -> bool:
    """Return whether the family writes more than `least` and more than it reads, and loads what it wrote."""
    measures = family.measures
    if not measures.keys() >= set(SAMPLED_NEEDS["kernels-register-spills"]):
        return False
    mostly = measures["dram_write"] > measures["dram"] / 2  # data of another library would be read, too
    return mostly and measures["l1_hit"] >= HITS and _written(family) > least


def _written(family: Family) -> float:
    """Return the bytes that one launch writes to DRAM."""
    measures = family.measures
    return measures["dram_bytes"] * measures["dram_write"] / measures["dram"] if measures["dram"] else 0.0


SAMPLED = (strided, spilling)  # for kinds with `measures`, where only sampled counters are available
