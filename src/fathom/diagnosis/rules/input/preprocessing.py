"""Batches that the host preprocesses before it copies them to the device."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule
from fathom.diagnosis.signals import HostWork, Signals, Work
from fathom.units import MB

ENTRY = Entry.DISPATCHING
LARGE = 1 << 16  # elements: fewer are bookkeeping
SENT = 0.25  # bytes copied per element processed: the result has to cross the link


@rule("input-cpu-preprocessing")
def preprocessing(signals: Signals) -> Candidates:
    """Find CPU ops that the device waits for and whose results are then copied to it."""
    ops = [work for work in signals["host.processor_ops"] if work.numel >= LARGE and work.idle_ms > 0]
    copies = [
        work
        for work in signals["kernels.work"]
        if work.entry == Entry.COPY and work.family.startswith("HtoD")
    ]
    sent = sum(work.bytes or 0.0 for work in copies)
    if not ops or sent < SENT * max(work.numel for work in ops):
        return
    idle = sum(work.idle_ms for work in ops)
    yield Candidate(
        kind="input-cpu-preprocessing",
        claims=[Claim(row.entry, row.detail, min(idle, row.ms)) for row in rows(signals, ENTRY)],
        evidence=_evidence(ops, copies, idle, sent),
        gain_ms=idle,
        doubt=0.15,
        confidence=0.8,
        check="do these ops on the device, after the copy, and time the step",
        source=ops[0].source,
    )


def _evidence(ops: list[HostWork], copies: list[Work], idle: float, sent: float) -> list[Evidence]:
    return [
        Evidence("host computing on tensors while the device is idle", idle, "ms per step"),
        *(
            Evidence(f"in {work.op} over {work.numel:,} elements", work.idle_ms, "ms per step")
            for work in ops[:3]
        ),
        Evidence("size of the copy to the device", sent / MB, "MB per step"),
        Evidence("time of this copy", sum(work.ms for work in copies), "ms per step"),
    ]
