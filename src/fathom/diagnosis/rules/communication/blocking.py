"""Collectives that make the host wait, or that serve only bookkeeping."""

from __future__ import annotations

from fathom.analysis.communication import ON_HOST
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import ms_of, on_processor, part_of, rows, undisturbed
from fathom.diagnosis.rules.communication.sharding import exposed_claims
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Signals
from fathom.diagnosis.signals.collectives import Blocking, Search

LEAST = 0.02  # of the step
IDLE = (
    Entry.SYNCHRONISATION, Entry.LAUNCH_LATENCY, Entry.DISPATCHING, Entry.PYTHON, Entry.DEVICE_GAP,
    Entry.UNEXPLAINED,
)  # fmt: skip


def _idle(signals: Signals, ms: float) -> list[Claim]:
    """Return claims of `ms` of idle time, in proportion to its rows."""
    return part_of(rows(signals, *IDLE), ms)


@rule("communication-synchronous")
def synchronous(signals: Signals) -> Candidates:
    """Report tiny collectives whose result the host reads, so that the device runs dry."""
    seen: Blocking | None = next(iter(signals["communication.blocking"]), None)
    if seen is None or seen.idle_ms < LEAST * signals["step.timeline_ms"]:
        return
    moved = min(seen.count * seen.one_ms, seen.idle_ms)
    copies = rows(signals, Entry.COPY)
    left = max(seen.idle_ms - moved - ms_of(copies), 0.0)
    yield Candidate(
        claims=[*_idle(signals, left), *copies, *exposed_claims(signals, moved)],
        evidence=[
            Evidence(f"tiny, blocking {seen.operation} calls", seen.count, "per step"),
            Evidence("time without compute around them", seen.idle_ms, "ms per step"),
            Evidence("median time of one", seen.one_ms, "ms"),
        ],
        gain_ms=seen.idle_ms,
        doubt=0.3,
        confidence=0.85,
    )


@rule("communication-unused-parameters")
def unused(signals: Signals) -> Candidates:
    """Report the search for unused parameters, if the device waits for it, or the processor does it."""
    seen: Search | None = next(iter(signals["communication.unused"]), None)
    gain, host = (seen.idle_ms + seen.reduced_ms if seen else 0.0), on_processor(signals)
    if seen is None or gain < LEAST * signals["step.timeline_ms"]:
        return
    waits = (
        part_of(rows(signals, *ON_HOST), seen.reduced_ms)
        if host
        else exposed_claims(signals, seen.reduced_ms)
    )
    yield Candidate(
        claims=[*_idle(signals, seen.idle_ms), *waits],
        evidence=[
            Evidence("parameters whose use is reduced in each step, as int32", seen.parameters, "parameters"),
            Evidence(
                "time of the search" if host else "idle time of the device during the search",
                seen.idle_ms,
                "ms per step",
            ),
            Evidence("exposed time of this reduction", seen.reduced_ms, "ms per step"),
        ],
        gain_ms=gain * (undisturbed(signals) if host else 1.0),
        doubt=0.3,
        confidence=0.7,
    )
