"""What the phases order: stretches to record, and what to do at a mark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One stretch that a recorder watches: `windows` whole steps of one phase."""

    phase: str
    windows: int
    keep_above_ns: int | None = None  # keep the burst only if it holds a step at least this long
    stacks: bool = False
    ops: bool = False  # of a timeline: record the framework's ops too, for no attribution follows
    group: int = 0  # of counters, sampled every `interval_ns`; `last` of all bursts with counters
    interval_ns: int = 0
    last: bool = False


@dataclass(frozen=True)
class Orders:
    """What to do at a mark, and how the step that opens there is labelled. The same object: no change."""

    phase: str
    burst: int
    stop: Job | None = None
    arm: Job | None = None
    start: Job | None = None
