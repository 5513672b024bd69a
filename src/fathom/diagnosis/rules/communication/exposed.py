"""Exposed communication, and the collectives that cause it."""

from __future__ import annotations

from fathom.analysis.communication import Collective, Communication
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import on_processor, rows
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Signals
from fathom.units import GB, KB, MB

LEAST = 0.05  # of the step
BEFORE = "before a receive"  # detail of idle time that a receive ends: nothing moves then
NAMED = 3  # collectives in the evidence


@rule("communication-exposed")
def exposed(signals: Signals) -> Candidates:
    """Report exposed collectives; overlap saves at most as much as the compute time without communication.

    Threads of the host that communicate compete with the program for the processor, so overlap gains little.
    """
    if on_processor(signals):
        return
    account: Communication = signals["communication.account"]
    claims = [c for c in rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES) if c.detail != BEFORE]
    total, free = sum(claim.ms for claim in claims), account.compute_ms - account.overlapped_ms
    if total < LEAST * signals["step.timeline_ms"]:
        return
    part = min(free / total, 1.0)
    yield Candidate(
        claims=[Claim(claim.entry, claim.detail, part * claim.ms) for claim in claims],
        evidence=list(_evidence(account, total)),
        changes=("communication=0",),
        part=part,
        doubt=0.5,  # dependencies between collectives and compute are unknown
        confidence=0.9,
        general=True,
        check="fathom query NAME.fathom 'SELECT * FROM collectives'",
    )


def _evidence(account: Communication, total: float) -> list[Evidence]:
    largest = [row for row in account.collectives if row.exposed_ms > 0][:NAMED]
    lines = [Evidence(f"exposed {described(row)}", row.exposed_ms, "ms per step") for row in largest]
    lines.append(Evidence("communication that overlaps with compute", 100 * account.overlap, "%"))
    free = account.compute_ms - account.overlapped_ms
    lines.append(Evidence("compute that overlaps with no communication", free, "ms per step"))
    bus = largest[0].bus_bytes_per_s if largest else None
    if bus:
        lines.append(Evidence(f"bus bandwidth of {described(largest[0])}", bus / GB, "GB/s"))
    return lines if total else []


def described(row: Collective) -> str:
    """Return operation, size and dtype: `all_reduce of 17.6 MB bf16`."""
    size = ""
    if row.bytes is not None:
        small = row.bytes < 0.1 * MB
        size = f" of {row.bytes / (KB if small else MB):.3g} {'kB' if small else 'MB'}"
    return f"{row.operation}{size} {row.dtype or ''}".rstrip()
