"""Signals of the host: runtime calls, waits, ops, and the work that it computes itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from fathom.analysis import causes
from fathom.analysis.entries import ALIASES, PRECEDENCE, Entry
from fathom.analysis.intervals import Array, Spans, covered, intersect, subtract, union
from fathom.analysis.work import rows_of
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Call, HostWork
from fathom.diagnosis.signals.shapes import shapes_of
from fathom.diagnosis.signals.value import most_common, signal
from fathom.units import NS_PER_MS

COPYING = r"Memcpy\w*Async"  # returns at once, unless
BLOCKING = r"^DtoH pageable"  # a copy to pageable memory waits for all work queued before it
_KEY = ["phase", "burst", "op"]
WORKS_NS = 50_000  # an op without a call for this long computes; dispatching takes less
MOSTLY = 0.8  # of an op's time in these calls
PINNING = r"^aten::_?pin_memory$"
PINNED = r"^aten::pin_memory$"
_COLUMNS = ["thread", "name", "start_ns", "end_ns", "shapes", "ran"]


@signal("host.calls", "ms per step")
def calls(recorded: Recorded) -> list[Call]:
    """Return calls that synchronise, allocate from the driver or load code, by the ops that made them."""
    rows = _before_the_end(recorded.own_calls)
    names = rows["api"].unique().drop_nulls().to_list()
    known = {api: cause for api in names if (cause := causes.api_cause(api) or _copying(api))}
    rows = rows.filter(pl.col("api").is_in(list(known)))
    described = _described(recorded, rows.with_columns(inside=recorded.inside(rows) | recorded.ahead(rows)))
    described = described.filter(
        ~pl.col("api").str.contains(COPYING) | pl.col("copies").str.contains(BLOCKING)
    )
    sources = _sources(described)
    inside = described.filter("inside").group_by("api", "path", "copies", maintain_order=True)
    totals = inside.agg(
        ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        count=pl.len(),
        region=pl.col("region").mode().sort().first(),
    ).sort("ns", descending=True)
    return [
        Call(
            api,
            known[api],
            recorded.per_step_ms(ns),
            count / recorded.steps,
            tuple(path),
            sources.get((api, *path)),
            region,
            copies,
        )
        for api, path, copies, ns, count, region in totals.iter_rows()
    ]


def _copying(api: str) -> str | None:
    return Entry.SYNCHRONISATION.cause if re.search(COPYING, api) else None


def _before_the_end(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the calls up to each burst's last launch, because profilers synchronise before they stop."""
    launching = pl.col("api").str.contains(causes.LAUNCH)
    last = pl.col("start_ns").filter(launching).max().over("phase", "burst")
    return rows.filter(pl.col("start_ns") <= last)


def _described(recorded: Recorded, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the calls with the path of their ops, their source, and the direction of the op's copy."""
    above, paths = rows_of(recorded.ops, rows, "op"), recorded.paths
    rows = rows.with_columns(
        path=pl.Series([list(paths.names(row)) for row in above.tolist()], dtype=pl.List(pl.String)),
        source=paths.marks("ran", above),
        region=paths.marks("region", above),
    )
    return rows.join(_copies(recorded), on=_KEY, how="left").with_columns(pl.col("copies").fill_null(""))


def _copies(recorded: Recorded) -> pl.DataFrame:
    """Return the direction of each op's copy."""
    copied = recorded.kernels.filter(pl.col("kind") == "copy").select(
        "phase", "burst", "correlation", "direction"
    )
    joined = recorded.calls.join(copied, on=["phase", "burst", "correlation"], how="inner")
    return joined.drop_nulls("op").group_by(_KEY).agg(copies=pl.col("direction").first())


def _sources(rows: pl.DataFrame) -> dict[tuple[str, ...], str]:
    """Return the program's line by call and path of ops, from steps recorded with stacks."""
    lines = rows.drop_nulls("source").group_by("api", "path").agg(pl.col("source").mode().sort().first())
    return {(api, *path): source for api, path, source in lines.iter_rows()}


@signal("host.waits_ms", "ms per step")
def waits(recorded: Recorded) -> dict[str, float]:
    """Return recorded waits by cause, in steps that represent the program, including rare long ones."""
    within, steps = recorded.account.measured()
    rows = recorded.rows("waits").collect()
    if not steps:
        return {}
    return {cause: ns / steps / NS_PER_MS for cause, ns in _within(rows, within)}


def _within(rows: pl.DataFrame, within: Spans) -> Iterator[tuple[str, float]]:
    """Return waits by cause, without parts inside waits of earlier causes (collections in compiling)."""
    rows = rows.with_columns(pl.col("cause").replace(ALIASES))
    known = [cause for cause in PRECEDENCE if cause in set(rows["cause"])]
    others = sorted(set(rows["cause"].drop_nulls()) - set(known))
    before = 0.0
    starts, ends = (np.zeros(0, np.int64) for _ in range(2))
    for cause in (*known, *others):
        mine = rows.filter(cause=cause)
        starts = np.concatenate((starts, mine["start_ns"].to_numpy()))
        ends = np.concatenate((ends, mine["end_ns"].to_numpy()))
        spans = union(starts, ends)
        total = float(covered(within, spans.starts, spans.ends).sum())
        yield cause, total - before
        before = total


@signal("host.launches", "per step")
def launches(recorded: Recorded) -> float:
    """Return all recorded runtime calls, of any step."""
    return float((recorded.calls["phase"] == "timeline").sum()) / recorded.steps


@signal("host.ops", "per step")
def ops(recorded: Recorded) -> dict[str, float]:
    """Return the calls of each op, by name."""
    rows = recorded.ops.filter(recorded.inside(recorded.ops))
    counts = rows["name"].drop_nulls().value_counts()
    return {name: count / recorded.steps for name, count in counts.iter_rows()}


@signal("host.called_ops", "per step")
def called_ops(recorded: Recorded) -> float:
    """Return the calls of ops by the program, without those that other ops or the backward pass make."""
    ops = recorded.ops.filter(recorded.inside(recorded.ops), kind="op")
    callers = ops.select("phase", "burst", parent="id")
    outermost = ops.join(callers, on=["phase", "burst", "parent"], how="anti")
    return outermost.filter(~pl.col("name").str.starts_with("autograd::engine::")).height / recorded.steps


@signal("host.processor_ops", "ms per step")
def processor_ops(recorded: Recorded) -> list[HostWork]:
    """Return outermost ops without a runtime call beneath them, sorted by falling device idle time."""
    ops = recorded.ops
    meets = recorded.meets & ~ops["name"].str.contains(PINNING).fill_null(False).to_numpy()
    beneath = np.append(~meets & _is_op(ops), False)[recorded.parents]  # NONE is the last
    rows = ops.select(_COLUMNS).filter(pl.Series(~meets & _is_op(ops) & ~beneath))
    return _worked(recorded, rows.filter(~pl.col("name").str.contains(PINNING)))


@signal("host.pinning", "ms per step")
def pinning(recorded: Recorded) -> list[HostWork]:
    """Return ops that copy a tensor to page-locked memory."""
    return _worked(recorded, recorded.ops.select(_COLUMNS).filter(pl.col("name").str.contains(PINNED)))


def _is_op(ops: pl.DataFrame) -> Array:
    return (ops["kind"] == "op").fill_null(False).to_numpy()


def _worked(recorded: Recorded, rows: pl.DataFrame) -> list[HostWork]:
    rows = _long(rows.filter(pl.col("thread").is_in(recorded.launching.implode())))
    groups = rows.group_by("name", maintain_order=True)
    ops = [_work(recorded, str(name), mine) for (name,), mine in groups]
    return sorted((op for op in ops if op.count), key=lambda op: -op.idle_ms)


def _long(rows: pl.DataFrame) -> pl.DataFrame:
    """Return calls that are long because they compute; usually short ops are excluded as interrupted."""
    took = pl.col("end_ns") - pl.col("start_ns")
    long = took >= WORKS_NS
    return rows.filter(long & (took.filter(long).sum() >= MOSTLY * took.sum()).over("name"))


def _work(recorded: Recorded, name: str, rows: pl.DataFrame) -> HostWork:
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    count = int((covered(recorded.used, starts, ends) > 0).sum())
    spans = intersect(union(starts, ends), recorded.used)
    idle = subtract(spans, recorded.busy)
    sizes = [shape for text in rows["shapes"].drop_nulls().unique() for shape in shapes_of(text)]
    return HostWork(
        name,
        recorded.per_step_ms(spans.length),
        recorded.per_step_ms(idle.length),
        count / recorded.steps,
        max((int(np.prod(shape)) for shape in sizes if shape), default=0),
        most_common(rows["ran"]),
    )
