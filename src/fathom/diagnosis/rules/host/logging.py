"""Rare long steps in which results are taken to the host, and worked on there."""

from __future__ import annotations

from fathom.diagnosis.rules.host.rarely import stalled
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Rare, Signals
from fathom.units import MB

OTHERWISE = 0.5  # of the long step: a recorded cause that holds so much is why it is long
MORE = 2.0  # times as many copies as in other steps


@rule("host-logging")
def logging(signals: Signals) -> Found:
    """Told from what is recorded as what it is: saving, compiling, collecting, waiting, searching."""
    gain = stalled(signals)
    if not gain:
        return
    step: Rare = signals["step.rare"]
    known = sum(step.waits_ms.values()) >= OTHERWISE * step.ms or bool(signals["host.searches"].op)
    if known or step.copied <= MORE * step.copied_usually:
        return
    yield Candidate(
        kind="host-logging",
        claims=[],
        evidence=[
            Evidence("a long step takes", step.ms, "ms"),
            Evidence("a typical one takes", signals["step.typical_ms"], "ms"),
            Evidence(f"long ones copy to the host, {step.copied:,.0f} times", step.copied_bytes / MB, "MB"),
        ],
        gain_ms=gain,
        doubt=0.15,
        confidence=0.7,
        check="leave the logging out, and compare the mean step",
        source=step.source,
    )
