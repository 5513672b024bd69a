"""Batches are copied into page-locked memory where the training thread, or the loader, waits for it."""

from __future__ import annotations

import re

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.input.loader import loader_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule, site, spent, usual
from fathom.diagnosis.signals import Call, Signals

PINS = re.compile(r"Host(Alloc|Malloc|Register)")
OFTEN = 0.2  # a step: less is a size that was met for the first time
ENTRIES = (Entry.DISPATCHING, Entry.ALLOCATOR)
OP = "op:pin_memory=0"


@rule("input-pinning")
def pinning(signals: Signals) -> Candidates:
    """In the thread that launches, or one thread that does it for all workers and is the slowest of them."""
    ops = signals.get("host.pinning").value or []
    calls = [call for call in signals.get("host.calls").value or [] if PINS.search(call.api)]
    idle = sum(work.idle_ms for work in ops)
    if idle > 0:
        count, ms = sum(work.count for work in ops), sum(work.ms for work in ops)
        yield Candidate(
            kind="input-pinning",
            claims=_claims(signals, idle),
            evidence=[
                Evidence(
                    "batches are copied into pinned memory by the thread that launches", count, "a step"
                ),
                Evidence("it is in these copies", ms, "ms a step"),
                Evidence("the device has nothing to do meanwhile", idle, "ms a step"),
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
    """Of the rows that such time is in, as much as it is, the first one first."""
    found = []
    for entry in ENTRIES:
        for row in rows(signals, entry):
            ms = min(row.ms, idle)
            found.append(Claim(row.entry, row.detail, ms))
            idle -= ms
    return found


def _allocating(signals: Signals, calls: list[Call]) -> Candidate:
    every = [call for call in signals["host.calls"] if call.cause == Entry.ALLOCATOR.cause]
    ms = sum(call.ms for call in calls)
    share = ms / (sum(call.ms for call in every) or 1.0)
    count = sum(call.count for call in calls)
    return Candidate(
        kind="input-pinning",
        claims=[Claim(row.entry, row.detail, share * row.ms) for row in rows(signals, Entry.ALLOCATOR)],
        evidence=[
            Evidence("page-locked memory is asked for in the step", count, "a step"),
            Evidence("the host is in these calls", ms, "ms a step"),
        ],
        changes=("allocator=0",),
        part=share,
        doubt=0.25,
        check="fathom what-if SOUNDING 'allocator=0'",
        **site(calls, "source", "region"),
    )


def _thread(signals: Signals) -> Candidates:
    """The loader's thread pins one batch after the other, however many workers there are."""
    seen = signals.get("input.lost_ms").value
    lost = spent(signals, Entry.INPUT) if seen is None else seen
    loader = loader_of(signals, lost)
    if not lost or loader is None or not loader.behind or not loader.held_by_pinning:
        return
    yield Candidate(
        kind="input-pinning",
        claims=list(rows(signals, Entry.INPUT)),
        evidence=[
            Evidence("the step waits for its batches", lost, "ms a step"),
            Evidence("the loader's one thread pins a batch in", loader.stages["pin"], "ms"),
            Evidence("its workers have one ready every", loader.made_ms / loader.workers, "ms"),
        ],
        changes=("input=0",) if seen is None else (),
        gain_ms=seen,
        doubt=0.15,
        confidence=0.85,
        check="fathom what-if SOUNDING 'input=0'; keep batches in memory that was pinned once",
    )
