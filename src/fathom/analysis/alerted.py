"""The recorded steps that represent clean steps: usually the timeline, after a slowdown those of an alert."""

from __future__ import annotations

from math import log

import msgspec
import polars as pl

from fathom.analysis.results import Abstained
from fathom.analysis.subjects import SLOW
from fathom.machine.model import Machine
from fathom.sounding import TABLES, Store
from fathom.units import NS_PER_MS

TIMELINE, CLEAN = "timeline", "clean"  # phases
LEFT_OUT = "transition"  # a phase whose steps count for nothing
FEWEST = 4  # steps that an alert recorded
LONGER = 1.25  # times a timeline's step, which profiling does not shorten: clean steps are of another kind


class Slower(msgspec.Struct, frozen=True):
    """The median steps of three phases in ms, if those of an alert are like the clean ones."""

    clean_ms: float
    timeline_ms: float
    slow_ms: float

    def note(self) -> Abstained:
        """Return why the timeline is not analysed."""
        return Abstained(
            "the first timeline",
            f"its steps took {self.timeline_ms:.3g} ms, later clean steps {self.clean_ms:.3g} ms; the steps "
            f"that an alert recorded ({self.slow_ms:.3g} ms) are analysed instead",
        )


def slower_since(store: Store) -> Slower | None:
    """Return the lengths of steps if most clean steps resemble those of an alert and not the timeline's."""
    if not any(phase.phase == SLOW for phase in store.manifest.phases):
        return None
    steps = store.table("steps").filter(pl.col("parent").is_null() & pl.col("end_ns").is_not_null())
    ms = (pl.col("end_ns") - pl.col("mark_ns")) / NS_PER_MS
    usual = steps.filter(pl.col("kind") == _usual_kind(steps))
    rows = usual.group_by("phase").agg(ms.median().alias("ms"), pl.len())
    known = {phase: (length, count) for phase, length, count in rows.collect().iter_rows()}
    if not {TIMELINE, SLOW, CLEAN} <= known.keys() or known[SLOW][1] < FEWEST:
        return None
    clean, timeline, slow = (known[phase][0] for phase in (CLEAN, TIMELINE, SLOW))
    if min(timeline, slow) <= 0:
        return None
    if clean < LONGER * timeline or abs(log(clean / slow)) > abs(log(clean / timeline)) / 2:
        return None
    return Slower(clean, timeline, slow)


def _usual_kind(steps: pl.LazyFrame) -> str | None:
    kinds = steps.filter(pl.col("phase") == CLEAN).select(pl.col("kind").mode().sort().first()).collect()
    return kinds.item() if kinds.height else None


def representative(store: Store) -> tuple[Store, Slower | None]:
    """Return the store and None, or a view in which an alert's steps are the timeline, and their lengths."""
    slower = slower_since(store)
    return (store if slower is None else _AlertAsTimeline(store)), slower


class _AlertAsTimeline(Store):
    """A view of a store in which the phase `slow` is the timeline, and the first timeline is left out."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.path, store.manifest, store.source)
        self._of = store

    def cached(self) -> Store:
        return self

    @property
    def machine(self) -> Machine:
        return self._of.machine

    def table(self, name: str, rank: int | None = None) -> pl.LazyFrame:
        frame = self._of.table(name, rank)
        if "phase" not in TABLES[name]:
            return frame
        return frame.with_columns(pl.col("phase").replace({TIMELINE: LEFT_OUT, SLOW: TIMELINE}))
