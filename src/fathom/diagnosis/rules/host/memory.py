"""Device memory: driver calls in the steady state, and fragmentation."""

from __future__ import annotations

import re

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import LATE, ms_of, rows, stalled
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import DriverCalls, Reserved, Signals
from fathom.units import GB

PINS = re.compile(r"Host")
OFTEN = 0.5  # calls per step
AGAIN = 0.5  # of the steps: in fewer, a size occurred for the first time
CHANGE = "allocator=0"
MUCH = 0.5  # of the peak of allocated memory
GROWS = 2.0  # ratio to the value at a third of the recording: a filled cache stops growing


class Reason(msgspec.Struct, frozen=True):
    """A reason for the allocator to call the driver (`host.asked`), and its kind of finding."""

    kind: str
    says: str
    once: bool = False  # a problem even if it happens in few steps


REASONS = {
    "room": Reason("host-allocator-retries", "driver calls that free cached blocks to make room"),
    "emptied": Reason("host-empty-cache", "driver calls that return cached blocks all at once", once=True),
    "new": Reason("host-cuda-malloc", "driver calls that allocate or free memory"),
}


@rule(*(reason.kind for reason in REASONS.values()))
def allocations(signals: Signals) -> Candidates:
    """Find calls of the allocator to the driver; their purpose decides the kind of finding."""
    asked: list[DriverCalls] = signals["host.asked"]
    pins = [c for c in signals["host.calls"] if c.cause == Entry.ALLOCATOR.cause and PINS.search(c.api)]
    total = ms_of(asked) + ms_of(pins)
    for group in asked:
        reason = REASONS.get(group.why)
        if reason and group.frees + group.asks >= OFTEN and (reason.once or group.steps >= AGAIN):
            yield _allocating(signals, reason, group, group.ms / (total or 1.0))


def _allocating(signals: Signals, reason: Reason, group: DriverCalls, share: float) -> Candidate:
    rare = stalled(signals) if group.steps < 1 else 0.0
    return Candidate(
        kind=reason.kind,
        claims=rows(signals, Entry.ALLOCATOR, share=share),
        evidence=[
            Evidence(reason.says, group.frees + group.asks, "per step"),
            Evidence("time in these calls", group.ms, "ms per step"),
        ],
        changes=() if rare else (CHANGE,),
        gain_ms=share * rare if rare else None,
        spill=LATE,
        part=share,
        doubt=0.3 if rare else 0.15,
        check=f"fathom what-if SOUNDING '{CHANGE}'",
        source=group.source,
        region=group.region,
    )


@rule("host-fragmentation")
def fragmentation(signals: Signals) -> Candidates:
    """Find fragmentation: reserved memory beyond the peak of allocated memory, unusable to the allocator."""
    reserved: Reserved = signals["device.reserved"]
    grows = reserved.unused >= GROWS * max(reserved.unused_before, 1.0)
    if not grows or reserved.unused < MUCH * reserved.allocated:
        return
    yield Candidate(
        claims=[],
        evidence=[
            Evidence("memory reserved beyond the peak of allocated memory", reserved.unused / GB, "GB"),
            Evidence("the same, after a third of the recording", reserved.unused_before / GB, "GB"),
        ],
        costless=True,
        check="compare the peaks of reserved_bytes and allocated_bytes in torch.cuda.memory_stats()",
    )
