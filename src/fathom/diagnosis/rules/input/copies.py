"""Copies of batches from pageable memory, or not overlapped with computation."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, claims_of, rule, usual
from fathom.diagnosis.signals import Signals, Work
from fathom.units import MB, MS_PER_S

TWICE = 0.45  # time of a pinned copy over that of a pageable one, if no rate was measured
CHECK = "fathom what-if SOUNDING 'copy:HtoD=0'"


@rule("input-pageable-copy", "input-copy-not-overlapped")
def copies(signals: Signals) -> Candidates:
    """Count exposed time only: these rows of the ledger exclude overlapped copies."""
    works = [
        work
        for work in signals["kernels.work"]
        if work.entry == Entry.COPY and work.family.startswith("HtoD")
    ]
    pageable = [work for work in works if "ageable" in work.family]
    pinned = [work for work in works if work not in pageable and work.alone]
    if pageable:
        factor = _factor(signals, pageable)
        yield _candidate("input-pageable-copy", pageable, f"copy:HtoD pageable={factor:.3f}", 1 - factor)
    if pinned:
        healthy = signals.number("device.link_share", 1.0)  # device-link-degraded claims the rest
        yield _candidate("input-copy-not-overlapped", pinned, f"copy:HtoD pinned={1 - healthy:.3f}", healthy)


def _factor(signals: Signals, works: list[Work]) -> float:
    """The time of pinned copies of the same bytes, as a share of the present time."""
    rates = signals.get("kernels.ceilings").value or {}
    pinned, ms = rates.get("HtoD pinned"), sum(work.ms for work in works)
    if not pinned or not all(work.bytes for work in works):
        return TWICE
    return min(sum(work.bytes or 0.0 for work in works) / pinned * MS_PER_S / ms, 1.0)


def _candidate(kind: str, works: list[Work], change: str, share: float) -> Candidate:
    ms, size = sum(work.ms for work in works), sum(work.bytes or 0.0 for work in works)
    where = "pageable" if "pageable" in kind else "pinned"
    return Candidate(
        kind=kind,
        claims=claims_of(works, share),
        evidence=[
            Evidence(f"exposed copies from {where} memory", ms, "ms per step"),
            Evidence("size of these copies", size / MB, "MB per step"),
        ],
        changes=(change,),
        doubt=0.2,
        check=CHECK,
        source=usual((work.source, work.ms) for work in works),
    )
