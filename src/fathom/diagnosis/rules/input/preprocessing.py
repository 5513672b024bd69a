"""Whole batches are worked on by the processor before they are sent."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rows, rule
from fathom.diagnosis.signals import HostWork, Signals, Work
from fathom.units import MB

ENTRY = Entry.DISPATCHING
LARGE = 1 << 16  # numbers: less is bookkeeping
SENT = 0.25  # of a byte for each number that was worked on: what is prepared here crosses the link


@rule("input-cpu-preprocessing")
def preprocessing(signals: Signals) -> Found:
    """Ops on processor tensors for which the device waits, and whose results are then copied to it."""
    ops = [one for one in signals["host.processor_ops"] if one.numel >= LARGE and one.idle_ms > 0]
    copies = [
        one for one in signals["kernels.work"] if one.entry == Entry.COPY and one.family.startswith("HtoD")
    ]
    sent = sum(one.bytes or 0.0 for one in copies)
    if not ops or sent < SENT * max(one.numel for one in ops):
        return
    idle = sum(one.idle_ms for one in ops)
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
        Evidence("the processor works on tensors while the device has nothing to do", idle, "ms a step"),
        *(Evidence(f"in {one.op} over {one.numel:,} numbers", one.idle_ms, "ms a step") for one in ops[:3]),
        Evidence("what is then copied to the device", sent / MB, "MB a step"),
        Evidence("takes", sum(one.ms for one in copies), "ms a step"),
    ]
