"""Memory allocated from the driver, or returned to it, in the steady state."""

from __future__ import annotations

import re

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.host.rarely import LATE, stalled
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule
from fathom.diagnosis.signals import DriverCalls, Signals

PINS = re.compile(r"Host")
OFTEN = 0.5  # calls per step
AGAIN = 0.5  # of the steps: in fewer, a size occurred for the first time
ENTRY, CHANGE = Entry.ALLOCATOR, "allocator=0"
CHECK = "fathom what-if SOUNDING 'allocator=0'"


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
    """Distinguish the kinds by what the allocator was doing when it called the driver."""
    asked: list[DriverCalls] = signals["host.asked"]
    pins = [c for c in signals["host.calls"] if c.cause == Entry.ALLOCATOR.cause and PINS.search(c.api)]
    total = sum(group.ms for group in asked) + sum(call.ms for call in pins)
    for group in asked:
        reason = REASONS.get(group.why)
        if reason and group.frees + group.asks >= OFTEN and (reason.once or group.steps >= AGAIN):
            yield _allocating(signals, reason, group, group.ms / (total or 1.0))


def _allocating(signals: Signals, reason: Reason, group: DriverCalls, share: float) -> Candidate:
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
    return [Evidence(says, count, "per step"), Evidence("time in these calls", ms, "ms per step")]
