"""Recorded waits of the host: garbage collection, checkpoints, compilation."""

from __future__ import annotations

import msgspec

from fathom.analysis import CPU
from fathom.analysis.entries import Entry, idle_entry
from fathom.diagnosis.rules.host.rarely import stalled
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule, spent
from fathom.diagnosis.signals import Compiled, HostLine, Signals

AGAIN = 3  # versions of one function: for the first shapes, for dynamic shapes; a third is due to guards
MOSTLY = 0.5  # of a line's samples
SAMPLED = 0.25  # doubt in sampled times
EXPLAINED = 0.5  # of the time that rare steps add: waits with this share explain them


class Wait(msgspec.Struct, frozen=True):
    """A cause of idle time, its kind of finding, and the text of its evidence."""

    cause: str
    kind: str
    says: str


WAITS = (
    Wait(
        Entry.GC.cause,
        "host-garbage-collection",
        "Python's garbage collector blocking the launching thread",
    ),
    Wait(Entry.CHECKPOINT.cause, "host-checkpoint", "saving or loading blocking the launching thread"),
    Wait(Entry.COMPILATION.cause, "host-compiling-in-steps", "compilation or module loading"),
)


@rule("host-recompilation", *(wait.kind for wait in WAITS))
def waits(signals: Signals) -> Candidates:
    """Rare waits cost the time that long steps add to the mean; waits in every step are replayed.

    If the timeline has more of them than the clean steps, the excess is chance or overhead: the gain
    is at most the time in clean steps.
    """
    recorded = signals.get("host.waits_ms").value or {}
    for wait in WAITS:
        idle, ms = spent(signals, idle_entry(wait.cause)), recorded.get(wait.cause, 0.0)
        if idle > 0 or ms > 0:
            yield _candidate(signals, wait, idle, recorded)


def beneath_saving(signals: Signals) -> list[HostLine]:
    """Lines of a CPU step that belong to a checkpoint it writes.

    Hooks time `torch.save`; gathering the state, moving the file and removing the old one happen around it.
    """
    waits = signals.get("host.waits_ms").value or {}
    if signals.get("step.device").value != CPU or not waits.get("checkpoint"):
        return []
    return [line for line in signals.get("host.lines").value or [] if line.saving >= MOSTLY]


def _candidate(signals: Signals, wait: Wait, idle: float, recorded: dict[str, float]) -> Candidate:
    ms, gain = recorded.get(wait.cause, 0.0), _rare(signals, wait, recorded)
    kind, more = _kind(signals, wait)
    around = beneath_saving(signals) if wait.cause == Entry.CHECKPOINT.cause else []
    if recorded and signals.get("step.device").value == CPU:
        ms += sum(line.ms for line in around)
        gain = ms  # a CPU has no queued work to do meanwhile
    if gain is None and (idle <= 0 or (recorded and ms < idle)):
        gain = ms
    return Candidate(
        kind=kind,
        claims=[
            *rows(signals, idle_entry(wait.cause)),
            *(Claim(line.entry, line.detail, line.ms) for line in around),
        ],
        evidence=[Evidence(wait.says, ms or idle, "ms per step"), *more],
        changes=(f"{wait.cause}=0",) if gain is None else (),
        gain_ms=gain,
        doubt=SAMPLED if around else _doubt(signals, gain),
        confidence=0.9,
        check=f"fathom what-if SOUNDING '{wait.cause}=0'",
        source=(signals.get("host.waiting_lines").value or {}).get(wait.cause),
    )


def _doubt(signals: Signals, gain: float | None) -> float:
    """Low if the gain is replayed, added by long steps, or measured on a CPU; high otherwise."""
    known = gain is None or stalled(signals) or signals.get("step.device").value == CPU
    return 0.15 if known else 0.4


def _rare(signals: Signals, wait: Wait, recorded: dict[str, float]) -> float | None:
    """The wait's share of the time that rare long steps add; None if there are none."""
    long, every = stalled(signals), sum(recorded.get(wait.cause, 0.0) for wait in WAITS)
    if not long or not every:
        return None
    ms = recorded.get(wait.cause, 0.0)
    return ms / every * long if every >= EXPLAINED * long else ms


def _kind(signals: Signals, wait: Wait) -> tuple[str, list[Evidence]]:
    """Distinguish recompilation, of the same function again, from compilation."""
    compiled: Compiled | None = signals.get("host.compiled").value
    most = max(compiled.versions.values(), default=0) if compiled else 0
    if wait.cause != Entry.COMPILATION.cause or most < AGAIN:
        return wait.kind, []
    return "host-recompilation", [Evidence("compilations of a single function", float(most), "times")]
