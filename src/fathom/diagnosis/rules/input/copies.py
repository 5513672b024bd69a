"""Batches on their way to the device: preprocessing on the host, pinning, copies."""

from __future__ import annotations

import re

from msgspec.structs import replace

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import claims_of, count_of, ms_of, rates_of, rows, site, usual
from fathom.diagnosis.rules.input.loader import loader_of, lost_of, waiting
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Call, Signals, Work
from fathom.units import MB, MS_PER_S

TWICE = 0.45  # time of a pinned copy over that of a pageable one, if no rate was measured
PINS = re.compile(r"Host(Alloc|Malloc|Register)")
OFTEN = 0.2  # allocations per step: fewer are sizes that occur for the first time
OP = "op:pin_memory=0"
LARGE = 1 << 16  # elements: fewer are bookkeeping
PARAMETERS = re.compile(r"FSDP::")  # regions that copy offloaded parameters, not batches
SENT = 0.25  # bytes copied per element processed: the result has to cross the link


@rule("input-pageable-copy", "input-copy-not-overlapped")
def copies(signals: Signals) -> Candidates:
    """Find exposed copies; the rows of the ledger exclude overlapped copies."""
    works = [work for work in copies_of(signals, "HtoD") if not PARAMETERS.match(work.region or "")]
    pageable = [work for work in works if "ageable" in work.family]
    pinned = [work for work in works if work not in pageable and work.alone]
    if pageable:
        factor = _factor(signals, pageable)
        yield _candidate("input-pageable-copy", pageable, f"copy:HtoD pageable={factor:.3f}", 1 - factor)
    if pinned:
        healthy = signals.number("device.link_share", 1.0)  # device-link-degraded claims the rest
        yield _candidate("input-copy-not-overlapped", pinned, f"copy:HtoD pinned={1 - healthy:.3f}", healthy)


def _factor(signals: Signals, works: list[Work]) -> float:
    """Return the time that pinned copies of the same bytes would take, as a share of the current time."""
    pinned = rates_of(signals).get("HtoD pinned")
    if not pinned or not all(work.bytes for work in works):
        return TWICE
    return min(bytes_of(works) / pinned * MS_PER_S / ms_of(works), 1.0)


def copies_of(signals: Signals, direction: str) -> list[Work]:
    """Return the copies in this direction, such as `HtoD`."""
    works = signals["kernels.work"]
    return [work for work in works if work.entry == Entry.COPY and work.family.startswith(direction)]


def bytes_of(works: list[Work]) -> float:
    """Return the bytes that these works copy per step."""
    return sum(work.bytes or 0.0 for work in works)


def _candidate(kind: str, works: list[Work], change: str, share: float) -> Candidate:
    where = "pageable" if "pageable" in kind else "pinned"
    return Candidate(
        kind=kind,
        claims=claims_of(works, share),
        evidence=[
            Evidence(f"exposed copies from {where} memory", ms_of(works), "ms per step"),
            Evidence("size of these copies", bytes_of(works) / MB, "MB per step"),
        ],
        changes=(change,),
        check="fathom what-if SOUNDING 'copy:HtoD=0'",
        **site(works, "source"),
    )


@rule("input-pinning")
def pinning(signals: Signals) -> Candidates:
    """Find pinning in the launching thread, or a pinning thread that is slower than all workers."""
    ops = signals.get("host.pinning").value or []
    calls = [call for call in signals.get("host.calls").value or [] if PINS.search(call.api)]
    idle = sum(work.idle_ms for work in ops)
    if idle > 0:
        yield Candidate(
            claims=_idle_rows(signals, idle),
            evidence=[
                Evidence("batches pinned by the training thread", count_of(ops), "per step"),
                Evidence("time in these copies", ms_of(ops), "ms per step"),
                Evidence("device idle meanwhile", idle, "ms per step"),
            ],
            changes=(OP,),
            doubt=0.2,
            check=f"fathom what-if SOUNDING '{OP}'",
            source=usual((work.source, work.ms) for work in ops),
        )
    elif count_of(calls) >= OFTEN:
        yield _allocating(signals, calls)
    else:
        yield from _thread(signals)


def _idle_rows(signals: Signals, idle: float) -> list[Claim]:
    """Claim the idle time from the dispatching rows first, then from the allocator rows."""
    claims = []
    for row in (*rows(signals, Entry.DISPATCHING), *rows(signals, Entry.ALLOCATOR)):
        claims.append(replace(row, ms=min(row.ms, idle)))
        idle -= claims[-1].ms
    return claims


def _allocating(signals: Signals, calls: list[Call]) -> Candidate:
    every = [call for call in signals["host.calls"] if call.cause == Entry.ALLOCATOR.cause]
    share = ms_of(calls) / (ms_of(every) or 1.0)
    return Candidate(
        claims=rows(signals, Entry.ALLOCATOR, share=share),
        evidence=[
            Evidence("allocations of page-locked memory in the step", count_of(calls), "per step"),
            Evidence("time in these calls", ms_of(calls), "ms per step"),
        ],
        changes=("allocator=0",),
        part=share,
        doubt=0.25,
        check="fathom what-if SOUNDING 'allocator=0'",
        **site(calls, "source", "region"),
    )


def _thread(signals: Signals) -> Candidates:
    """Find a pinning thread that limits the loader: it pins one batch at a time for all workers."""
    seen, lost = lost_of(signals)
    loader = loader_of(signals, lost)
    if not lost or loader is None or not loader.behind or not loader.held_by_pinning:
        return
    yield Candidate(
        claims=waiting(signals),
        evidence=[
            Evidence("wait for batches", lost, "ms per step"),
            Evidence("time to pin a batch in the loader's single thread", loader.stages["pin"], "ms"),
            Evidence("time between two batches of its workers", loader.made_ms / loader.workers, "ms"),
        ],
        changes=("input=0",) if seen is None else (),
        gain_ms=seen,
        doubt=0.15,
        confidence=0.85,
        check="fathom what-if SOUNDING 'input=0'; reuse pinned memory for the batches",
    )


@rule("input-cpu-preprocessing")
def preprocessing(signals: Signals) -> Candidates:
    """Find CPU ops that the device waits for and whose results are then copied to it."""
    ops = [work for work in signals["host.processor_ops"] if work.numel >= LARGE and work.idle_ms > 0]
    works = copies_of(signals, "HtoD")
    sent = bytes_of(works)
    if not ops or sent < SENT * max(work.numel for work in ops):
        return
    idle = sum(work.idle_ms for work in ops)
    yield Candidate(
        claims=[replace(row, ms=min(idle, row.ms)) for row in rows(signals, Entry.DISPATCHING)],
        evidence=[
            Evidence("host ops on tensors while the device is idle", idle, "ms per step"),
            *(
                Evidence(f"in {op.op} over {op.numel:,} elements", op.idle_ms, "ms per step")
                for op in ops[:3]
            ),
            Evidence("size of the copy to the device", sent / MB, "MB per step"),
            Evidence("time of this copy", ms_of(works), "ms per step"),
        ],
        gain_ms=idle,
        doubt=0.15,
        confidence=0.8,
        check="run these ops on the device after the copy, and time the step",
        source=ops[0].source,
    )
