"""Batches that are pinned while the training thread, or the loader, waits for it."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.input.loader import loader_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule, site, spent, usual
from fathom.diagnosis.signals import Call, Signals

PINS = re.compile(r"Host(Alloc|Malloc|Register)")
OFTEN = 0.2  # per step: fewer are sizes that occur for the first time
ENTRIES = (Entry.DISPATCHING, Entry.ALLOCATOR)
OP = "op:pin_memory=0"


@rule("input-pinning")
def pinning(signals: Signals) -> Candidates:
    """Find pinning in the launching thread, or a pinning thread that is slower than all workers."""
    ops = signals.get("host.pinning").value or []
    calls = [call for call in signals.get("host.calls").value or [] if PINS.search(call.api)]
    idle = sum(work.idle_ms for work in ops)
    if idle > 0:
        count, ms = sum(work.count for work in ops), sum(work.ms for work in ops)
        yield Candidate(
            kind="input-pinning",
            claims=_claims(signals, idle),
            evidence=[
                Evidence("batches pinned by the launching thread", count, "per step"),
                Evidence("time in these copies", ms, "ms per step"),
                Evidence("device idle meanwhile", idle, "ms per step"),
            ],
            changes=(OP,),
            doubt=0.2,
            check=f"fathom what-if SOUNDING '{OP}'",
            source=usual((work.source, work.ms) for work in ops),
        )
    elif sum(call.count for call in calls) >= OFTEN:
        yield _allocating(signals, calls)
    else:
        yield from _thread(signals)


def _claims(signals: Signals, idle: float) -> list[Claim]:
    """Claims of the idle time from the rows of `ENTRIES`, in this order."""
    claims = []
    for entry in ENTRIES:
        for row in rows(signals, entry):
            ms = min(row.ms, idle)
            claims.append(Claim(row.entry, row.detail, ms))
            idle -= ms
    return claims


def _allocating(signals: Signals, calls: list[Call]) -> Candidate:
    every = [call for call in signals["host.calls"] if call.cause == Entry.ALLOCATOR.cause]
    ms = sum(call.ms for call in calls)
    share = ms / (sum(call.ms for call in every) or 1.0)
    count = sum(call.count for call in calls)
    return Candidate(
        kind="input-pinning",
        claims=[Claim(row.entry, row.detail, share * row.ms) for row in rows(signals, Entry.ALLOCATOR)],
        evidence=[
            Evidence("allocations of page-locked memory in the step", count, "per step"),
            Evidence("time in these calls", ms, "ms per step"),
        ],
        changes=("allocator=0",),
        part=share,
        doubt=0.25,
        check="fathom what-if SOUNDING 'allocator=0'",
        **site(calls, "source", "region"),
    )


def _thread(signals: Signals) -> Candidates:
    """Find a pinning thread that limits the loader: it pins one batch at a time for all workers."""
    seen = signals.get("input.lost_ms").value
    lost = spent(signals, Entry.INPUT) if seen is None else seen
    loader = loader_of(signals, lost)
    if not lost or loader is None or not loader.behind or not loader.held_by_pinning:
        return
    yield Candidate(
        kind="input-pinning",
        claims=list(rows(signals, Entry.INPUT)),
        evidence=[
            Evidence("the step's wait for batches", lost, "ms per step"),
            Evidence("time of the loader's single thread to pin a batch", loader.stages["pin"], "ms"),
            Evidence("time between two batches of its workers", loader.made_ms / loader.workers, "ms"),
        ],
        changes=("input=0",) if seen is None else (),
        gain_ms=seen,
        doubt=0.15,
        confidence=0.85,
        check="fathom what-if SOUNDING 'input=0'; reuse pinned memory for the batches",
    )
