"""Rare long steps that copy results to the host and process them there."""

from __future__ import annotations

from fathom.diagnosis.rules.host.rarely import stalled
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Rare, Signals
from fathom.units import MB

OTHERWISE = 0.5  # of the long step: a recorded cause this large explains the step
MORE = 2.0  # ratio of copies to those of other steps


@rule("host-logging")
def logging(signals: Signals) -> Candidates:
    """Report long steps without a recorded cause (saving, compiling, collection, waits, autotuning)."""
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
            Evidence("duration of a long step", step.ms, "ms"),
            Evidence("duration of a typical step", signals["step.typical_ms"], "ms"),
            Evidence(
                f"bytes a long step copies to the host, in {step.copied:,.0f} copies",
                step.copied_bytes / MB,
                "MB",
            ),
        ],
        gain_ms=gain,
        doubt=0.15,
        confidence=0.7,
        check="leave the logging out, and compare the mean step",
        source=step.source,
    )
