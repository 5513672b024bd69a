"""Between most kernels the device waits for the next launch, or for the Python before it."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule, spent
from fathom.diagnosis.signals import Signals

LAUNCHING = ("idle: dispatching", "idle: launch latency")
PYTHON = "idle: python"
LEAST = 0.08  # of the timeline's step
MANY = 30  # pieces of device work a step
PYTHONIC = 0.6  # of the host's idle time: more, and Python rather than the number of launches is at fault
CAPTURED = ("dispatching=0.02", "python=0.05", "launch-latency=0.2")  # of a replayed graph, one launch a step

# Where the host loses its lead to one of these, it is not the launches that cost the time after it.
OTHERS = ("sync=0", "input=0", "gc=0", "checkpoint=0", "allocator=0", "compilation=0")


@rule("host-launch-bound", "host-python")
def launch_bound(signals: Signals) -> Found:
    """Graphs take both away; where Python dominates, the program's own code is named."""
    working = [*(signals.get("host.processor_ops").value or []), *(signals.get("host.pinning").value or [])]
    launching = max(spent(signals, *LAUNCHING) - sum(one.idle_ms for one in working), 0.0)
    python = spent(signals, PYTHON)
    step, count = signals["step.timeline_ms"], signals["kernels.count"]
    if launching + python < LEAST * step or count < 1:
        return
    in_python = python > PYTHONIC * (launching + python)
    if not in_python and count < MANY:
        return
    share = (launching + python) / step
    evidence = [
        Evidence(f"the device waits for launches {share:.0%} of the recorded step", 100 * share, "%"),
        Evidence(f"{count:,.0f} pieces of device work a step", count, "a step"),
        Evidence("half of the kernels are shorter than this", signals["kernels.median_us"], "µs"),
    ]
    yield Candidate(
        kind="host-python" if in_python else "host-launch-bound",
        claims=[],
        evidence=evidence,
        changes=("python=0.1",) if in_python else CAPTURED,
        given=(*OTHERS, *dict.fromkeys(f"op:{one.op}=0" for one in working)),
        spill=(PYTHON,) if in_python else (*LAUNCHING, PYTHON),
        doubt=0.25 if in_python else 0.15,
        confidence=0.8,
        check="fathom what-if SOUNDING " + " ".join(f"'{change}'" for change in CAPTURED),
    )
