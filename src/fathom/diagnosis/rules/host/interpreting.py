"""The program's own Python takes too long: a device waits for it, and on a processor nothing computes."""

from __future__ import annotations

from fathom.analysis.subjects import CPU
from fathom.diagnosis.rules.host.launch_bound import PYTHON, late_launches
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Signals

LEAST = 0.25  # of the step: small models pay some of it for every op
LEFT = 0.1  # of it: something has to ask for the ops


@rule("host-python")
def interpreting(signals: Signals) -> Found:
    """On a device, where the host's pauses are Python's; on a processor by its share of the step."""
    if signals.get("step.device").value == CPU:
        return _on_processor(signals)
    return (one for one in late_launches(signals) if one.kind == "host-python")


def _on_processor(signals: Signals) -> Found:
    """A profiler makes the pauses between ops longer, so it is their share that counts."""
    share = spent(signals, PYTHON) / signals["step.timeline_ms"]
    if share < LEAST:
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
