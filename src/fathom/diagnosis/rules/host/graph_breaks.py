"""A compiled model in many pieces, with Python between them."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Compiled, Signals

BREAKS = 0.5  # a step: fewer are of a rare branch


@rule("host-graph-breaks")
def graph_breaks(signals: Signals) -> Found:
    """What is behind a break is a function of its own, which the one before it calls."""
    compiled: Compiled = signals["host.compiled"]
    if compiled.resumed < BREAKS:
        return
    idle, step = signals["step.idle_ms"], signals["step.timeline_ms"]
    yield Candidate(
        kind="host-graph-breaks",
        claims=[],
        evidence=[
            Evidence("compiled graphs that go on behind a break", compiled.resumed, "a step"),
            Evidence("Python and guards on the host before these", compiled.between_ms, "ms a step"),
        ],
        gain_ms=min(compiled.between_ms / step * signals["step.mean_ms"], idle),
        doubt=0.5,
        confidence=0.7,
        check="TORCH_LOGS=graph_breaks python train.py",
        source=compiled.source,
    )
