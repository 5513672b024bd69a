"""Devices that wait between most kernels, for the next launch or for the Python before it."""

from __future__ import annotations

from collections.abc import Iterator

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import part_of, rows, shorter, spent
from fathom.diagnosis.rules.framework.anomalies import unchecked
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import (
    Broken,
    Captured,
    Compiled,
    Eager,
    Holds,
    HostWork,
    Preparation,
    Signals,
)

LAUNCHES = "host-launch-bound"
SIZES = "host-graph-sizes"
LAUNCHING = (Entry.DISPATCHING, Entry.LAUNCH_LATENCY)
PYTHON = Entry.PYTHON
LEAST = 0.08  # of the timeline's step
PYTHONIC = 0.6  # of idle time caused by the host: above it, Python is the cause, not the number of launches
LEFT, LATENCY = (("dispatching", 0.02), ("python", 0.05)), "launch-latency=0.2"  # of a step in one CUDA graph
CAPTURED = (*(f"{name}={factor}" for name, factor in LEFT), LATENCY)

# If the host loses its lead to one of these, the launches did not cause the idle time after it.
OTHERS = ("sync=0", "gc=0", "checkpoint=0", "allocator=0", "compilation=0")
FED = 0.02  # of the step: a loader that clean steps wait less for keeps up, whatever the timeline shows

MANY = 2.0  # pauses per step as long as the interpreter's switch interval
PLACES = 3  # places of the pauses: the program's own computation is at the same place in each step
ON_TURNS = 0.6  # of the pauses end with a switch of threads
FELT = 0.01  # of the step, for which an op keeps the launching thread
MINE = 0.5  # of the timeline's step: below it, threads are not the cause
MOSTLY = 0.5  # of the time in pauses

STEPS = 2  # with graphs, and without, at least
UNCAPTURED = 0.8  # of the device's idle time, in decode steps without graphs

RARE = 0.5  # compiled regions or breaks per step: fewer belong to a rare branch
UNCOMPILED = 0.5  # of the step's ops: below it, most launches come from code that was never to be compiled


@rule("host-launch-bound", "host-thread-contention", "host-graph-sizes")
def launch_bound(signals: Signals) -> Candidates:
    """Find a device that waits for the host, but not for the program's own Python.

    If the compiler failed on the frames that launch, they are the cause (`host-graph-breaks`). If decodes of
    some batch sizes run as graphs, the sizes without one are (`host-graph-sizes`).
    """
    others = ("host-python", LAUNCHES) if uncompiled(signals) else ("host-python",)
    return (candidate for candidate in late_launches(signals) if candidate.kind not in others)


def uncompiled(signals: Signals) -> list[Broken]:
    """Return frames that Dynamo failed to compile, if they launch most of a step without compiled code."""
    compiled: Compiled | None = signals.get("host.compiled").value
    frames: list[Broken] = signals.get("host.given_up").value or []
    if compiled is None or compiled.regions >= RARE:
        return []
    return frames if sum(frame.share for frame in frames) >= UNCOMPILED else []


def graphed(signals: Signals) -> tuple[str, ...]:
    """Return the changes of compiled kernels that CUDA graphs launch; none if nothing can be fused.

    The optimizer is not captured, and its share of host time stays.
    """
    eager: Eager | None = signals.get("framework.eager").value
    if eager is None:
        return ()
    host = ((name, eager.optimizer + (1 - eager.optimizer) * factor) for name, factor in LEFT)
    return (*shorter(eager.saved, signals), *(f"{name}={factor:.4f}" for name, factor in host), LATENCY)


def late_launches(signals: Signals) -> Candidates:
    """Classify pauses: short ones are launches, long ones Python, and in many places other threads."""
    busy = sum(op.idle_ms for op in _working(signals)) + sum(op.idle_ms for op in preparations(signals))
    launching, python = max(spent(signals, *LAUNCHING) - busy, 0.0), spent(signals, PYTHON)
    step = signals["step.timeline_ms"]
    if launching + python < LEAST * step or signals["kernels.count"] < 1:
        return
    holds: Holds = signals["host.holds"]
    short = min(signals["device.short_pauses_ms"] / (launching + python), 1.0)
    part = 1.0 if short >= MOSTLY else short
    if _contended(holds, step):
        yield _contention(holds, (launching + python) / step, signals)
    elif python > PYTHONIC * (launching + python) and short < MOSTLY:
        yield _candidate(signals, "host-python", (launching + python) / step)
    elif part * (launching + python) >= LEAST * step:
        steps = uncaptured(signals)
        share = (launching + python) / step
        yield _uncaptured(signals, steps) if steps else _candidate(signals, LAUNCHES, share, part)


def uncaptured(signals: Signals) -> Captured | None:
    """Return the decode steps, if nearly all idle time is in those that run without a CUDA graph."""
    decodes: Captured | None = signals.get("host.captured").value
    if decodes is None or min(decodes.graphed, decodes.eager) < STEPS or decodes.idle_share < UNCAPTURED:
        return None
    return decodes


def _working(signals: Signals) -> list[HostWork]:
    """Return the time of ops that compute or pin on the host, which fewer launches would not save."""
    return [*(signals.get("host.processor_ops").value or []), *(signals.get("host.pinning").value or [])]


def preparations(signals: Signals) -> list[Preparation]:
    """Return the time of ops with long preparation before a launch, which fewer launches would not save."""
    least = FELT * signals["step.timeline_ms"]
    every = signals.get("host.preparations").value or []
    return [preparation for preparation in every if preparation.idle_ms >= least]


def _starved(signals: Signals) -> tuple[str, ...]:
    lost, mean = signals.get("input.lost_ms").value, signals.get("step.mean_ms").value
    return () if lost is not None and mean and lost < FED * mean else ("input=0",)


def _contended(holds: Holds, step: float) -> bool:
    many = holds.count >= MANY and holds.places >= PLACES
    return many and holds.on_turns >= ON_TURNS and holds.ms >= MINE * step


def _contention(holds: Holds, share: float, signals: Signals) -> Candidate:
    """Return a candidate that saves the pauses, because the launching thread would continue at once."""
    mean = signals.number("step.mean_ms", signals["step.timeline_ms"])
    most = signals.number("step.idle_ms", mean)
    return Candidate(
        kind="host-thread-contention",
        claims=[],
        evidence=[
            Evidence("pauses of at least 5 ms, the interpreter's switch interval", holds.count, "per step"),
            Evidence("share of these pauses that end with a thread switch", 100 * holds.on_turns, "%"),
            Evidence("device waits for the host", 100 * share, "% of the profiled step"),
        ],
        gain_ms=min(share * mean, most),
        spill=(PYTHON, *LAUNCHING),
        doubt=0.1,
        check="py-spy dump --pid PID; move the other threads' work into a process",
    )


def _candidate(signals: Signals, kind: str, share: float, part: float = 1.0) -> Candidate:
    """Return the candidate; `part` is the share of the replay's gain in pauses as short as launches."""
    in_python = kind == "host-python"
    prepared = tuple(preparation.without for preparation in preparations(signals))
    worked = dict.fromkeys(f"op:{work.op}=0" for work in _working(signals))
    return Candidate(
        kind=kind,
        claims=[],
        evidence=[
            Evidence("device waits for launches", 100 * share, "% of the profiled step"),
            Evidence("kernels and copies launched", signals["kernels.count"], "per step"),
            Evidence("median kernel duration", signals["kernels.median_us"], "µs"),
            *_too_long(part),
        ],
        changes=("python=0.1",) if in_python else CAPTURED,
        given=(*OTHERS, *unchecked(signals), *_starved(signals), *worked, *prepared),
        graphed=() if in_python else graphed(signals),
        spill=(PYTHON,) if in_python else (*LAUNCHING, PYTHON),
        part=part,
        doubt=0.25 if in_python else 0.15,
        confidence=0.8,
        check=_check(CAPTURED, prepared),
    )


def _uncaptured(signals: Signals, decodes: Captured) -> Candidate:
    """Return a candidate that leaves steps without a graph as little idle time as those with one have."""
    steps, timeline = decodes.graphed + decodes.eager, signals["step.timeline_ms"]
    gain = decodes.saved_ms / timeline * signals.number("step.mean_ms", timeline)
    return Candidate(
        kind=SIZES,
        claims=part_of(rows(signals, *LAUNCHING, PYTHON), gain),
        evidence=[
            Evidence("decode steps without a CUDA graph", 100 * decodes.eager / steps, "% of those recorded"),
            Evidence("idle time of one of these beyond that of a step with one", decodes.each_ms, "ms"),
            *_sizes(decodes),
        ],
        gain_ms=gain,
        spill=(*LAUNCHING, PYTHON),
        doubt=0.15,
        check="capture these batch sizes, and time the steps by batch size",
    )


def _sizes(decodes: Captured) -> Iterator[Evidence]:
    """Yield which batches have a graph."""
    if decodes.largest_graphed is not None:
        yield Evidence("largest batch replayed from a graph", float(decodes.largest_graphed), "requests")
    if decodes.smallest_eager is not None:
        yield Evidence("smallest batch launched by kernels", float(decodes.smallest_eager), "requests")


def _too_long(part: float) -> list[Evidence]:
    says = "share of this wait in pauses short enough to be launches"
    return [Evidence(says, 100 * part, "%")] if part < 1 else []


def _check(changes: tuple[str, ...], prepared: tuple[str, ...]) -> str:
    """Return the command that checks the gain; the gain of preparations alone is subtracted."""
    both, alone = (" ".join(f"'{change}'" for change in some) for some in ((*prepared, *changes), prepared))
    return f"fathom what-if SOUNDING {both}" + (f", less what {alone} alone saves" if prepared else "")
