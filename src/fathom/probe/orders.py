"""Orders of the phases: stretches to record, and what to do at a mark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One stretch for a recorder to watch: `windows` complete steps of one phase."""

    phase: str
    windows: int
    keep_above_ns: int | None = None  # keep the burst only if one of its steps is at least this long
    stacks: bool = False
    ops: bool = False  # in a timeline: also record the framework's ops, because no attribution burst follows
    group: int = 0  # counters to sample every `interval_ns`; `last`: the last burst with counters
    interval_ns: int = 0
    last: bool = False


@dataclass(frozen=True)
class Orders:
    """The orders at a mark, and the label of the step that opens there. Equal orders are the same object."""

    phase: str
    burst: int
    stop: Job | None = None
    arm: Job | None = None
    start: Job | None = None
