"""On a processor: Python between the ops takes a large part of the step."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Signals

PROCESSOR = "cpu"
PYTHON = "idle: python"
LEAST = 0.25  # of the step: small models pay some of it for every op
LEFT = 0.1  # of it: something has to ask for the ops


@rule("host-python")
def interpreting(signals: Signals) -> Found:
    """Nothing computes meanwhile. A profiler makes the pauses between ops longer, so their share counts."""
    share = spent(signals, PYTHON) / signals["step.timeline_ms"]
    if signals["step.device"] != PROCESSOR or share < LEAST:
        return
    mean = signals.number("step.mean_ms", signals["step.timeline_ms"])
    yield Candidate(
        kind="host-python",
        claims=list(rows(signals, PYTHON)),
        evidence=[
            Evidence("of the recorded step Python runs between ops", 100 * share, "%"),
            Evidence("ops are asked for", sum(signals["host.ops"].values()), "a step"),
        ],
        gain_ms=(1 - LEFT) * share * mean,
        doubt=0.4,
        confidence=0.7,
        check="py-spy top -- COMMAND; fathom what-if SOUNDING 'python=0.1'",
    )
