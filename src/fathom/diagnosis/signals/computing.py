"""The program's own Python that computes for long between two ops."""

from __future__ import annotations

import re

import polars as pl

from fathom.analysis import causes
from fathom.analysis.intervals import NOTHING, Spans, intersect, merge, of_rows, subtract, union
from fathom.analysis.work import NONE
from fathom.diagnosis.signals import silent
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Computing
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

LONG_NS = 1_000_000  # longer than a call of an op, also under a profiler
OFTEN, TWICE = 0.5, 2  # of the steps: computations in fewer steps do not belong to each step
LIBRARY = re.compile(rf"^Optimizer\.|{causes.NATIVE_REGION.pattern}")  # regions


@signal("host.computing", "ms per step")
def computing(recorded: Recorded) -> Computing:
    """Long Python time outside ops of libraries and recorded waits, at places that half of the steps pass."""
    rows = silent.stretches(recorded, LONG_NS).filter(~pl.col("calling"))
    rows = rows.filter(pl.Series(_own(recorded, rows["inside"].to_list()), dtype=pl.Boolean))
    rows = rows.with_columns(window=recorded.window(rows.rename({"at": "start_ns"})))
    places = [_place(recorded, row) for row in rows["before"]]
    rows = rows.with_columns(after=pl.Series(places, dtype=pl.String))
    often = pl.col("window").n_unique().over("after") >= max(OFTEN * recorded.steps, TWICE)
    rows = rows.filter(pl.col("window") >= 0).filter(often)
    alone = intersect(_alone(recorded, rows), recorded.used)
    idle = subtract(alone, recorded.busy)
    count = len(alone.starts) / recorded.steps
    return Computing(idle.length / recorded.steps / NS_PER_MS, count, _source(recorded, rows))


def _own(recorded: Recorded, inside: list[int]) -> list[bool]:
    """Whether each row is outside ops and regions of libraries; regions of the program are allowed."""
    names, kinds = (recorded.ops[name].fill_null("").to_list() for name in ("name", "kind"))

    def passes(row: int) -> bool:
        named = LIBRARY.search(names[row]) or causes.region_cause(names[row])
        return kinds[row] == "annotation" and not named

    own = []
    for row in inside:
        while row != NONE and passes(row):
            row = int(recorded.parents[row])
        own.append(row == NONE or (kinds[row] == "op" and "::" not in names[row]))
    return own


def _alone(recorded: Recorded, rows: pl.DataFrame) -> Spans:
    """Time without waits and without an op in another thread, such as the backward pass."""
    waits = of_rows(recorded.store.table("waits", recorded.account.rank).collect())
    spans = []
    for (thread,), mine in rows.group_by("thread"):
        others = recorded.ops.filter(pl.col("thread") != thread, pl.col("kind") == "op")
        alone = subtract(union(mine["at"].to_numpy(), mine["until"].to_numpy()), of_rows(others))
        alone = subtract(alone, waits)
        long = alone.ends - alone.starts >= LONG_NS
        spans.append(Spans(alone.starts[long], alone.ends[long]))
    return merge(NOTHING, *spans)


def _source(recorded: Recorded, rows: pl.DataFrame) -> str | None:
    """The program's line that called the op before the longest stretch, if stacks were recorded."""
    took = rows.group_by("after").agg((pl.col("until") - pl.col("at")).sum()).sort("until", "after")
    if not took.height:
        return None
    after = took["after"][-1]
    deep = recorded.ops.with_row_index("row").filter(phase="attribution")["row"]
    asked = (recorded.paths.mark("ran", row) for row in deep if _place(recorded, row) == after)
    sources = [source for source in asked if source]
    return max(sorted(set(sources)), key=sources.count, default=None)


def _place(recorded: Recorded, row: int) -> str:
    return " > ".join(recorded.paths.names(row))
