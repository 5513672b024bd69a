"""Stretches of launching threads without records: Python, preparation of launches, and pauses."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from fathom.analysis import causes
from fathom.analysis.intervals import (
    NOTHING,
    Array,
    Spans,
    covered,
    intersect,
    merge,
    of_rows,
    subtract,
    union,
)
from fathom.analysis.work import NONE
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Computing, Holds, Preparation
from fathom.diagnosis.signals.value import most_common, signal
from fathom.units import NS_PER_MS

KEYS = ["phase", "burst", "thread"]
TIMES = ["start_ns", "end_ns"]
SHORT_NS = 300_000  # about ten launches under a profiler: longer pauses are not due to launching
TURN_NS = 5_000_000  # sys.getswitchinterval(): time for which a thread keeps the interpreter from others
_COLUMNS = ["phase", "burst", "start_ns", "end_ns", "name"]
WORKING = 10  # ops of another launching thread: it does the program's work meanwhile
EARLY, LATE = 0.1, 0.25  # of a switch interval: tolerance before and after a multiple of it
OPS = r"^\w+::"  # of a library: functions of the program have no namespace
ENGINE = r"^(autograd|torch)::"
LONG_NS = 1_000_000  # longer than a call of an op, also under a profiler
OFTEN, TWICE = 0.5, 2  # of the steps: computations in fewer steps do not belong to each step
LIBRARY = re.compile(rf"^Optimizer\.|{causes.NATIVE_REGION.pattern}")  # regions


def silences(recorded: Recorded, least_ns: int) -> pl.DataFrame:
    """Return stretches from `at` to `until`, with the row of the op that the thread is `inside`, the row of
    the record `before` (NONE if there is none), and whether the thread is `calling` the runtime throughout.
    """
    if "silent" not in recorded.read:  # several signals ask, for other lengths
        recorded.read["silent"] = _all(recorded)
    return recorded.read["silent"].filter(pl.col("until") - pl.col("at") >= least_ns)


def _all(recorded: Recorded) -> pl.DataFrame:
    row = pl.col("op_row")
    ops = recorded.ops.select(
        *KEYS,
        *TIMES,
        "kind",
        op_row=pl.int_range(pl.len(), dtype=pl.Int64),
        above=pl.Series(recorded.parents),
    )
    ops = ops.filter(pl.col("kind").ne_missing("python"))
    calls = recorded.calls.select(*KEYS, *TIMES, op_row=pl.Series(recorded.callers))
    # After a record begins, the thread is in it; after it ends, the thread is in its caller.
    edges = [
        _edges(ops, row, begins=True),
        _edges(ops, pl.col("above"), begins=False),
        _edges(calls, row, begins=True, calling=True),
        _edges(calls, row, begins=False),
    ]
    rows = pl.concat(edges).filter(pl.col("thread").is_in(recorded.launching.implode()))
    rows = rows.sort(*KEYS, "at", "begins", "tie", maintain_order=True)
    return rows.with_columns(until=pl.col("at").shift(-1).over(KEYS))


def _edges(records: pl.DataFrame, inside: pl.Expr, *, begins: bool, calling: bool = False) -> pl.DataFrame:
    """Return the edges in order; at equal times, inner ends, outer ends, outer starts, inner starts."""
    at, other = ("start_ns", "end_ns") if begins else ("end_ns", "start_ns")
    longer = records.filter(pl.col("start_ns") < pl.col("end_ns"))
    return longer.select(
        *KEYS,
        at=at,
        inside=inside,
        before="op_row",
        calling=pl.lit(calling),
        begins=pl.lit(begins),
        tie=-pl.col(other),
    )


@signal("device.short_pauses_ms", "ms per step")
def short_pauses(recorded: Recorded) -> float:
    """Return the device's idle time in pauses so short that only launching explains them."""
    busy = recorded.busy
    total = 0
    for start, end in zip(*recorded.used, strict=True):
        inner = (busy.ends > start) & (busy.starts < end)
        edges = np.concatenate(([start], np.stack((busy.starts, busy.ends), 1)[inner].ravel(), [end]))
        pauses = np.diff(np.clip(edges, start, end))[::2]
        total += int(pauses[pauses < SHORT_NS].sum())
    return recorded.per_step_ms(total)


@signal("host.holds", "per step")
def holds(recorded: Recorded) -> Holds:
    """Return pauses between two records of a launching thread; a long runtime call is not a pause.

    Nor is a turn of another launching thread, such as autograd's, for which the program waits.
    """
    calls = recorded.own_calls
    launching = recorded.launching.to_list()
    shown = pl.col("kind").ne_missing("python") & pl.col("thread").is_in(launching)
    ops, steps = recorded.ops.select("kind", "thread", *_COLUMNS).filter(shown), recorded.steps
    by_thread = [_of_thread(recorded, ops, calls, thread) for thread in launching]
    starts, ends = (
        np.concatenate([pauses[side] for pauses in by_thread] or [np.zeros(0, int)]) for side in (0, 1)
    )
    places = {place for pauses in by_thread for place in pauses[2]}
    turns = (ends - starts) / TURN_NS
    beside = turns - np.round(turns)
    spans = union(starts, ends)
    return Holds(
        float((spans.ends - spans.starts).sum()) / steps / NS_PER_MS,
        len(starts) / steps,
        len(places),
        float(((beside >= -EARLY) & (beside <= LATE)).mean()) if len(starts) else 0.0,
    )


def _of_thread(
    recorded: Recorded, ops: pl.DataFrame, calls: pl.DataFrame, thread: int
) -> tuple[Array, Array, list[str]]:
    """Return the start and end of the pauses, and the records that they follow."""
    named = calls.filter(thread=thread).rename({"api": "name"}).select(_COLUMNS)
    tables = [ops.filter(thread=thread).select(_COLUMNS), named]
    edges = [
        table.select("phase", "burst", "name", at=at) for table in tables for at in ("start_ns", "end_ns")
    ]
    rows = pl.concat(edges).sort("at", maintain_order=True)
    rows = rows.with_columns(until=pl.col("at").shift(-1).over("phase", "burst"))
    rows = rows.filter(pl.col("until") - pl.col("at") >= (1 - EARLY) * TURN_NS)
    rows = rows.filter(recorded.inside(rows.rename({"at": "start_ns"})))
    rows = rows.join(named, left_on=["at", "until"], right_on=["start_ns", "end_ns"], how="anti")
    others = np.sort(ops.filter(pl.col("thread") != thread)["start_ns"].to_numpy())
    working = np.searchsorted(others, rows["until"].to_numpy()) - np.searchsorted(
        others, rows["at"].to_numpy()
    )
    rows = rows.filter(pl.Series(working < WORKING, dtype=pl.Boolean))
    return rows["at"].to_numpy(), rows["until"].to_numpy(), rows["name"].to_list()


@signal("host.preparations", "ms per step")
def preparations(recorded: Recorded) -> list[Preparation]:
    """Return preparations by name of the innermost op, sorted by falling device idle time.

    Only ops that call the runtime are included; `host.processor_ops` has the others. First use is left out.
    """
    ops = recorded.ops.select("kind", "name", inside=pl.int_range(pl.len(), dtype=pl.Int64))
    stretches = silences(recorded, SHORT_NS).filter(~pl.col("calling"))
    stretches = stretches.filter(~recorded.loading(stretches.rename({"at": "start_ns"})))
    mine = ops.filter(
        pl.Series(recorded.meets), pl.col("inside").is_in(stretches["inside"].implode()), kind="op"
    )
    mine = mine.filter(pl.col("name").str.contains(OPS), ~pl.col("name").str.contains(ENGINE))
    groups = stretches.join(mine, on="inside").group_by("name", maintain_order=True)
    prepared = [_preparation(recorded, str(name), rows) for (name,), rows in groups]
    return sorted((op for op in prepared if op.count), key=lambda op: -op.idle_ms)


def _preparation(recorded: Recorded, name: str, rows: pl.DataFrame) -> Preparation:
    starts, ends = rows["at"].to_numpy(), rows["until"].to_numpy()
    silent = intersect(union(starts, ends), recorded.used)
    every = recorded.ops.select("name", "start_ns", "end_ns", "ran").filter(name=name)
    every_call = intersect(of_rows(every), recorded.used)
    within = rows.filter(pl.Series(covered(recorded.used, starts, ends) > 0))
    return Preparation(
        name,
        recorded.per_step_ms(silent.length),
        recorded.per_step_ms(subtract(silent, recorded.busy).length),
        within["inside"].n_unique() / recorded.steps,
        silent.length / every_call.length if every_call.length else 0.0,
        most_common(every["ran"]),
    )


@signal("host.computing", "ms per step")
def computing(recorded: Recorded) -> Computing:
    """Return long Python time outside library ops and recorded waits, at places that half the steps pass."""
    rows = silences(recorded, LONG_NS).filter(~pl.col("calling"))
    rows = rows.filter(pl.Series(_own(recorded, rows["inside"].to_list()), dtype=pl.Boolean))
    rows = rows.with_columns(window=recorded.window(rows.rename({"at": "start_ns"})))
    places = [_place(recorded, row) for row in rows["before"]]
    rows = rows.with_columns(after=pl.Series(places, dtype=pl.String))
    often = pl.col("window").n_unique().over("after") >= max(OFTEN * recorded.steps, TWICE)
    rows = rows.filter(pl.col("window") >= 0).filter(often)
    alone = intersect(_alone(recorded, rows), recorded.used)
    idle = subtract(alone, recorded.busy)
    count = len(alone.starts) / recorded.steps
    return Computing(recorded.per_step_ms(idle.length), count, _source(recorded, rows))


def _own(recorded: Recorded, inside: list[int]) -> list[bool]:
    """Return whether each row is outside ops and regions of libraries; regions of the program are allowed."""
    names, kinds = (recorded.ops[name] for name in ("name", "kind"))

    def passes(row: int) -> bool:
        named = LIBRARY.search(names[row] or "") or causes.region_cause(names[row] or "")
        return kinds[row] == "annotation" and not named

    own = []
    for row in inside:
        while row != NONE and passes(row):
            row = int(recorded.parents[row])
        own.append(row == NONE or (kinds[row] == "op" and "::" not in (names[row] or "")))
    return own


def _alone(recorded: Recorded, rows: pl.DataFrame) -> Spans:
    """Return the time without waits and without an op in another thread, such as the backward pass."""
    waits = of_rows(recorded.rows("waits").collect())
    spans = []
    for (thread,), mine in rows.group_by("thread"):
        others = recorded.ops.filter(pl.col("thread") != thread, pl.col("kind") == "op")
        alone = subtract(union(mine["at"].to_numpy(), mine["until"].to_numpy()), of_rows(others))
        alone = subtract(alone, waits)
        long = alone.ends - alone.starts >= LONG_NS
        spans.append(Spans(alone.starts[long], alone.ends[long]))
    return merge(NOTHING, *spans)


def _source(recorded: Recorded, rows: pl.DataFrame) -> str | None:
    """Return the program's line that called the op before the longest stretch, if stacks were recorded."""
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
