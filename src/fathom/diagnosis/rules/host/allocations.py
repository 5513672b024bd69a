"""Memory that is asked of the driver, or given back to it, in settled steps."""

from __future__ import annotations

import re

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.host.rarely import LATE, stalled
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rows, rule
from fathom.diagnosis.signals import Asked, Signals

PINS = re.compile(r"Host")
OFTEN = 0.5  # a step
AGAIN = 0.5  # of the steps: in fewer, and it is a size that was met for the first time
ENTRY, CHANGE = Entry.ALLOCATOR, "allocator=0"
CHECK = "fathom what-if SOUNDING 'allocator=0'"


class Reason(msgspec.Struct, frozen=True):
    """Why the allocator calls the driver (`host.asked`), and the kind that it is."""

    kind: str
    says: str
    once: bool = False  # it is a fault though it happens in few steps


REASONS = {
    "room": Reason("host-allocator-retries", "cached blocks are freed to make room for another"),
    "emptied": Reason("host-empty-cache", "cached blocks are given back all at once", once=True),
    "new": Reason("host-cuda-malloc", "the driver is asked for memory, or given it back"),
}


@rule(*(reason.kind for reason in REASONS.values()))
def allocations(signals: Signals) -> Found:
    """What the allocator was doing when it called tells the kinds apart."""
    asked: list[Asked] = signals["host.asked"]
    pins = [c for c in signals["host.calls"] if c.cause == Entry.ALLOCATOR.cause and PINS.search(c.api)]
    total = sum(group.ms for group in asked) + sum(call.ms for call in pins)
    for group in asked:
        reason = REASONS.get(group.why)
        if reason and group.frees + group.asks >= OFTEN and (reason.once or group.steps >= AGAIN):
            yield _allocating(signals, reason, group, group.ms / (total or 1.0))


def _allocating(signals: Signals, reason: Reason, group: Asked, share: float) -> Candidate:
    rare = stalled(signals) if group.steps < 1 else 0.0
    return Candidate(
        kind=reason.kind,
        claims=_claims(signals, share),
        evidence=_evidence(reason.says, group.frees + group.asks, group.ms),
        changes=() if rare else (CHANGE,),
        gain_ms=share * rare if rare else None,
        spill=LATE,
        part=share,
        doubt=0.3 if rare else 0.15,
        check=CHECK,
        source=group.source,
        region=group.region,
    )


def _claims(signals: Signals, share: float) -> list[Claim]:
    return [Claim(c.entry, c.detail, share * c.ms) for c in rows(signals, ENTRY)]


def _evidence(says: str, count: float, ms: float) -> list[Evidence]:
    return [Evidence(says, count, "a step"), Evidence("time in these calls", ms, "ms a step")]
