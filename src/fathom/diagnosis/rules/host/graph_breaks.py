"""A compiled model in many pieces, with Python between them."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Compiled, Signals

PIECES = 3.0  # different functions a step: a model, and another one such as its optimizer, are two


@rule("host-graph-breaks")
def graph_breaks(signals: Signals) -> Found:
    """Each piece is compiled as a function of its own, and runs about once a step."""
    compiled: Compiled = signals["host.compiled"]
    if compiled.functions < PIECES:
        return
    idle, step = signals["step.idle_ms"], signals["step.timeline_ms"]
    yield Candidate(
        kind="host-graph-breaks",
        claims=[],
        evidence=[
            Evidence("compiled pieces", compiled.functions, "a step"),
            Evidence("on the host between one and the next", compiled.between_ms, "ms a step"),
        ],
        gain_ms=min(compiled.between_ms / step * signals["step.mean_ms"], idle),
        doubt=0.5,
        confidence=0.7,
        check="TORCH_LOGS=graph_breaks python train.py",
        source=compiled.source,
    )
