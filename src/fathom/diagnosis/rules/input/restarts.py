"""Workers that are started for every epoch."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Signals


@rule("input-worker-restart")
def restarts(signals: Signals) -> Found:
    """The first batch of a later epoch waits for workers; with persistent ones it hardly does."""
    waited = signals["input.restarts_ms"]
    if waited > 0 and signals["input.workers"] > 0:
        yield Candidate(
            kind="input-worker-restart",
            claims=[],
            evidence=[
                Evidence(
                    "waiting for the first batch of later epochs, spread over all steps", waited, "ms a step"
                )
            ],
            gain_ms=waited,
            doubt=0.3,
            confidence=0.8,
            check="persistent_workers=True, and time an epoch",
        )
