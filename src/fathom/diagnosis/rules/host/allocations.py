"""Memory that is asked of the driver, or given back to it, in settled steps."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, usual
from fathom.diagnosis.signals import Call, Signals

FREES = re.compile(r"^(cuda|hip)Free(Async)?$|^cu(MemFree|MemRelease|MemUnmap)")
MAPS = re.compile(r"^cuMem(Create|Map|Unmap|SetAccess|Release|Address)")
PINS = re.compile(r"Host")
OFTEN = 0.2  # a step: less is a size that was met for the first time
EMPTYING = 0.5  # frees for each allocation: the cache is given back and asked for again


@rule("host-empty-cache", "host-cuda-malloc")
def allocations(signals: Signals) -> Found:
    """Frees as frequent as allocations mean that the cache is emptied."""
    calls = [call for call in signals["host.calls"] if call.cause == "allocator"]
    device = [call for call in calls if not PINS.search(call.api)]
    frees = sum(call.count for call in device if FREES.search(call.api))
    allocates = sum(call.count for call in device) - frees
    if allocates >= OFTEN:
        kind = "host-empty-cache" if frees >= EMPTYING * allocates else "host-cuda-malloc"
        yield _candidate(signals, kind, device, calls, "the driver is asked for memory, or given it back")


def _candidate(signals: Signals, kind: str, mine: list[Call], every: list[Call], says: str) -> Candidate:
    count, ms = sum(call.count for call in mine), sum(call.ms for call in mine)
    share = ms / (sum(call.ms for call in every) or 1.0)
    claims = [type(c)(c.entry, c.detail, share * c.ms) for c in rows(signals, "idle: allocator")]
    return Candidate(
        kind=kind,
        claims=claims,
        evidence=[Evidence(says, count, "a step"), Evidence("the host is in these calls", ms, "ms a step")],
        changes=("allocator=0",),
        part=share,
        doubt=0.25,
        check="fathom what-if SOUNDING 'allocator=0'",
        source=usual((call.source, call.ms) for call in mine),
        region=usual((call.region, call.ms) for call in mine),
    )
