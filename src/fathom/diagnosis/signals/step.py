"""Signals of the step as a whole."""

from __future__ import annotations

from fathom.analysis.replay import Replay
from fathom.diagnosis.signals.recorded import NO_TIMELINE, Recorded
from fathom.diagnosis.signals.rows import Row
from fathom.diagnosis.signals.value import UnknownSignalError, signal


@signal("step.ms", "ms")
def step_ms(recorded: Recorded) -> float | None:
    """The mean of the clean steps, rare long ones included, else of the timeline's.

    Not less than the median: where the device had nothing to do yet, its boundaries make steps too short.
    """
    step = recorded.step
    clean = [ms for ms in (step.clean_mean_ms, step.clean_ms) if ms is not None]
    return max(clean, default=step.timeline_ms)


@signal("step.timeline_ms", "ms")
def timeline_ms(recorded: Recorded) -> float | None:
    return recorded.device.total_ms


@signal("step.kind")
def kind(recorded: Recorded) -> str:
    return recorded.account.kind


@signal("step.rank")
def rank(recorded: Recorded) -> int:
    return recorded.account.rank


@signal("step.device")
def device(recorded: Recorded) -> str:
    return recorded.device.device


@signal("step.ledger", "ms a step")
def ledger(recorded: Recorded) -> list[Row]:
    """Every row, largest first."""
    return [
        Row(
            e.entry,
            e.detail,
            e.ms,
            e.count,
            e.at_ceiling_ms,
            e.bytes,
            e.unit,
            e.product_flops,
            e.recomputed_flops,
        )
        for e in recorded.device.ledger
    ]


@signal("step.replay")
def replay(recorded: Recorded) -> Replay:
    """The recorded timeline as a graph that can be replayed with changes."""
    found = Replay(recorded.store, recorded.account.rank)
    if found.seen is None:
        raise UnknownSignalError(NO_TIMELINE)
    return found
