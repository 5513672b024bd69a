"""Waits of the host: garbage collection, checkpoints, compilation, blocking calls, rare processing."""

from __future__ import annotations

import msgspec

from fathom.analysis.entries import Entry, idle_entry
from fathom.diagnosis.rules.candidates import ms_of, on_processor, rows, spent, stalled
from fathom.diagnosis.rules.host.recompilation import KIND as RECOMPILATION
from fathom.diagnosis.rules.host.recompilation import action, beyond_the_limit, failed_guards, recompiled
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Compiled, HostLine, Rare, Signals
from fathom.units import MB

AGAIN = 3  # versions of one function: for the first shapes, for dynamic shapes; a third is due to guards
MOSTLY = 0.5  # of a line's samples
SAMPLED = 0.25  # doubt in sampled times
EXPLAINED = 0.5  # of the time that rare steps add: waits with this share explain them
LEAST = 0.03  # of the step, for which a line blocks: less is noise on a busy host
LEFT = 0.1  # of a blocked line's time: its other work
OTHERWISE = 0.5  # of the long step: a recorded cause this large explains the step
MORE = 2.0  # ratio of a long step's copies to those of other steps


class Wait(msgspec.Struct, frozen=True):
    """A cause of idle time, its kind of finding, and the text of its evidence."""

    cause: str
    kind: str
    says: str


WAITS = (
    Wait(Entry.GC.cause, "host-garbage-collection", "launching thread blocked by Python's garbage collector"),
    Wait(Entry.CHECKPOINT.cause, "host-checkpoint", "launching thread blocked by saving or loading"),
    Wait(Entry.COMPILATION.cause, "host-compiling-in-steps", "compilation or module loading"),
)


@rule(RECOMPILATION, *(wait.kind for wait in WAITS))
def waits(signals: Signals) -> Candidates:
    """Report waits: rare ones cost the extra time of long steps; those of every step are replayed.

    If the timeline has more waits than the clean steps, the excess is chance or overhead, so the gain is at
    most their time in clean steps. Compilations up to the limit end there, so they cost nothing later.
    """
    recorded = signals.get("host.waits_ms").value or {}
    limited = list(beyond_the_limit(signals))
    yield from limited
    for wait in WAITS:
        idle, ms = spent(signals, idle_entry(wait.cause)), recorded.get(wait.cause, 0.0)
        if (idle > 0 or ms > 0) and not (limited and wait.cause == Entry.COMPILATION.cause):
            yield _candidate(signals, wait, idle, recorded)


def beneath_saving(signals: Signals) -> list[HostLine]:
    """Return the lines of a CPU step that belong to writing a checkpoint.

    Hooks only time the calls that write, but the program also gathers the state, and moves and removes files.
    """
    waits = signals.get("host.waits_ms").value or {}
    if not on_processor(signals) or not waits.get("checkpoint"):
        return []
    return [line for line in signals.get("host.lines").value or [] if line.saving >= MOSTLY]


def _candidate(signals: Signals, wait: Wait, idle: float, recorded: dict[str, float]) -> Candidate:
    ms, gain = recorded.get(wait.cause, 0.0), _rare(signals, wait, recorded)
    kind, more = _kind(signals, wait)
    around = beneath_saving(signals) if wait.cause == Entry.CHECKPOINT.cause else []
    if recorded and on_processor(signals):
        ms += ms_of(around)
        gain = ms  # a CPU has no queued work to do meanwhile
    if gain is None and (idle <= 0 or (recorded and ms < idle)):
        gain = ms
    return Candidate(
        kind=kind,
        claims=[*rows(signals, idle_entry(wait.cause)), *map(claim_of, around)],
        evidence=[Evidence(wait.says, ms or idle, "ms per step"), *more],
        changes=(f"{wait.cause}=0",) if gain is None else (),
        gain_ms=gain,
        doubt=SAMPLED if around else _doubt(signals, gain),
        check=f"fathom what-if SOUNDING '{wait.cause}=0'",
        source=(signals.get("host.waiting_lines").value or {}).get(wait.cause),
        action=action(recompiled(signals)) if kind == RECOMPILATION else "",
    )


def claim_of(line: HostLine) -> Claim:
    """Return the claim of the line's row."""
    return Claim(line.entry, line.detail, line.ms)


def _doubt(signals: Signals, gain: float | None) -> float:
    """Return a low doubt for gains from a replay, from long steps or measured on a CPU; else a high one."""
    known = gain is None or stalled(signals) or on_processor(signals)
    return 0.15 if known else 0.4


def _rare(signals: Signals, wait: Wait, recorded: dict[str, float]) -> float | None:
    """Return the wait's share of the time that rare long steps add; None if there are none."""
    long, every = stalled(signals), sum(recorded.get(wait.cause, 0.0) for wait in WAITS)
    if not long or not every:
        return None
    ms = recorded.get(wait.cause, 0.0)
    return ms / every * long if every >= EXPLAINED * long else ms


def _kind(signals: Signals, wait: Wait) -> tuple[str, list[Evidence]]:
    """Distinguish recompilation of the same function from first compilation."""
    compiled: Compiled | None = signals.get("host.compiled").value
    most = max(compiled.versions.values(), default=0) if compiled else 0
    if wait.cause != Entry.COMPILATION.cause or most < AGAIN:
        return wait.kind, []
    more = failed_guards(recompiled(signals)[:1])
    return RECOMPILATION, more or [Evidence("compilations of a single function", float(most), "times")]


@rule("host-blocked")
def blocked(signals: Signals) -> Candidates:
    """Report each line that sleeps, reads, writes or waits for a lock for at least `LEAST` of the step."""
    least, saving = LEAST * signals["step.timeline_ms"], beneath_saving(signals)
    for line in signals["host.lines"]:
        if line.entry == Entry.BLOCKED and line.ms >= least and line not in saving:
            yield Candidate(
                claims=[claim_of(line)],
                evidence=[Evidence(f"blocked in {line.detail}", line.ms, "ms per step")],
                gain_ms=(1 - LEFT) * line.ms,
                confidence=0.85,
                check=f"look at the call at {line.source}",
                source=line.source,
            )


@rule("host-logging")
def logging(signals: Signals) -> Candidates:
    """Report rare long steps that copy results to the host and process them there.

    Steps with a recorded cause (saving, compiling, collection, waits, autotuning) are excluded.
    """
    gain = stalled(signals)
    if not gain:
        return
    step: Rare = signals["step.rare"]
    known = sum(step.waits_ms.values()) >= OTHERWISE * step.ms or bool(signals["host.searches"].op)
    if known or step.copied <= MORE * step.copied_usually:
        return
    copied = f"bytes a long step copies to the host, in {step.copied:,.0f} copies"
    yield Candidate(
        claims=[],
        evidence=[
            Evidence("duration of a long step", step.ms, "ms"),
            Evidence("duration of a typical step", signals["step.typical_ms"], "ms"),
            Evidence(copied, step.copied_bytes / MB, "MB"),
        ],
        gain_ms=gain,
        doubt=0.15,
        confidence=0.7,
        check="remove the logging, and compare the mean step",
        source=step.source,
    )
