"""The program's own Python takes too long: a device waits for it, and on a processor nothing computes."""

from __future__ import annotations

from fathom.analysis.subjects import CPU
from fathom.diagnosis.rules.host.launch_bound import PYTHON, late_launches
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Computing, Signals

LEAST = 0.25  # of the step: small models pay some of it for every op
LONG = 0.05  # of it, on a device that idles meanwhile
LEFT = 0.1  # of it: something has to ask for the ops


@rule("host-python")
def interpreting(signals: Signals) -> Found:
    """On a device, where the host's pauses are Python's; on a processor by its share of the step."""
    if signals.get("step.device").value == CPU:
        return _on_processor(signals)
    late = {one.kind: one for one in late_launches(signals)}
    if late.keys() & {"host-python", "host-thread-contention"}:
        return [one for kind, one in late.items() if kind == "host-python"]
    return _beside_launches(signals)


def _beside_launches(signals: Signals) -> Found:
    """Long computations of the program's own, where other pauses are launching's or Python's for each op."""
    own: Computing | None = signals.get("host.computing").value
    python, step = spent(signals, PYTHON), signals["step.timeline_ms"]
    if own is None or own.idle_ms < LONG * step or not python:
        return
    part = min(own.idle_ms / python, 1.0)
    yield Candidate(
        kind="host-python",
        claims=[],
        evidence=[
            Evidence("long computations in Python between ops", own.count, "a step"),
            Evidence("the device idles in them", own.idle_ms, "ms a step"),
        ],
        changes=("python=0.1",),
        spill=(PYTHON,),
        part=part,
        doubt=0.25,
        confidence=0.8,
        check="fathom what-if SOUNDING 'python=0.1'",
        source=own.source,
    )


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
