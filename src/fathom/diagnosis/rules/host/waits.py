"""Waits of the host that are recorded as what they are: collections, saving, compiling."""

from __future__ import annotations

from dataclasses import dataclass

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Signals


@dataclass(frozen=True)
class Wait:
    """A cause of idle time, the kind that it is, and what shows it."""

    cause: str
    kind: str
    says: str
    rare: bool = False  # it may fall outside the few steps of the timeline


WAITS = (
    Wait(
        "gc", "host-garbage-collection", "Python's garbage collector holds up the thread that launches", True
    ),
    Wait("checkpoint", "host-checkpoint", "saving or loading holds up the thread that launches", True),
    Wait("compilation", "host-compiling-in-steps", "something is compiled or loaded", True),
)


@rule(*(wait.kind for wait in WAITS))
def waits(signals: Signals) -> Found:
    """What the timeline shows is replayed; what only the clean steps show costs what it took in them."""
    usual = signals.get("host.waits_ms").value or {}
    for wait in WAITS:
        idle, recorded = spent(signals, f"idle: {wait.cause}"), usual.get(wait.cause, 0.0)
        if idle > 0 or (wait.rare and recorded > 0):
            yield _candidate(signals, wait, idle, recorded)


def _candidate(signals: Signals, wait: Wait, idle: float, recorded: float) -> Candidate:
    seen = idle >= recorded or idle > 0
    return Candidate(
        kind=wait.kind,
        claims=list(rows(signals, f"idle: {wait.cause}")),
        evidence=[Evidence(wait.says, idle if seen else recorded, "ms a step")],
        changes=(f"{wait.cause}=0",) if seen else (),
        gain_ms=None if seen else recorded,
        doubt=0.15 if seen else 0.4,
        confidence=0.9 if seen else 0.7,
        check=f"fathom what-if SOUNDING '{wait.cause}=0'",
    )
