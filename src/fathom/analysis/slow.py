"""Steps that were recorded because they were slow, each with a ledger of its own."""

from __future__ import annotations

import polars as pl

from fathom.analysis.recording import read_timeline
from fathom.analysis.results import SlowStep
from fathom.analysis.rows import entries_of
from fathom.analysis.subjects import Subject, subjects
from fathom.sounding import Store
from fathom.units import NS_PER_MS

PHASE = "slow"


def slow_steps(store: Store, rank: int) -> list[SlowStep]:
    """The slowest step of each burst that `fathom run --on-slow-step` kept, on every device."""
    if store.table("ops", rank).filter(phase=PHASE).head(1).collect().is_empty():
        return []
    timeline = read_timeline(store, rank, PHASE)
    recorded = timeline.steps.filter(pl.col("burst").is_in(timeline.ops["burst"].unique().to_list()))
    whole = recorded.filter(pl.col("parent").is_null()).drop_nulls("end_ns")
    slowest = whole.sort(pl.col("end_ns") - pl.col("mark_ns"), descending=True)
    found = []
    for step in slowest.unique("burst", keep="first", maintain_order=True).iter_slices(1):
        timeline.steps = step
        found += [_slow(rank, step["step"][0], subject) for subject in subjects(timeline)]
    return found


def _slow(rank: int, step: int, subject: Subject) -> SlowStep:
    total = subject.ledger.windows.total_ns / NS_PER_MS
    return SlowStep(rank, step, subject.label, total, entries_of(subject.ledger, None))
