"""Ops that keep the thread that launches for long without calling anything: they prepare what they launch."""

from __future__ import annotations

import polars as pl

from fathom.analysis import causes
from fathom.analysis.intervals import Spans, covered, intersect, subtract, union
from fathom.analysis.work.tree import NONE, rows_of
from fathom.diagnosis.signals.pauses import SHORT_NS
from fathom.diagnosis.signals.processor import meeting
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Held
from fathom.diagnosis.signals.value import signal

MS = 1e6
OPS = r"^\w+::"  # of a library: a function of the program's own, which runs Python, has no namespace
ENGINE = r"^(autograd|torch)::"


@signal("host.held", "ms a step")
def held(recorded: Recorded) -> list[Held]:
    """By name of the innermost op, those that keep the device idle longest first.

    Ops that meet the device alone: what others do is `host.processor_ops`.
    """
    stretches = _stretches(recorded)
    ops = recorded.ops.with_row_index("op_row", 0).with_columns(pl.col("op_row").cast(pl.Int64))
    named = pl.col("name").str.contains(OPS) & ~pl.col("name").str.contains(ENGINE)
    mine = ops.filter(pl.Series(meeting(recorded)), pl.col("kind") == "op", named)
    stretches = stretches.join(mine.select("op_row", "name"), on="op_row")
    groups = stretches.group_by("name", maintain_order=True)
    found = [_held(recorded, str(name), rows) for (name,), rows in groups]
    return sorted((one for one in found if one.count), key=lambda one: -one.idle_ms)


def _stretches(recorded: Recorded) -> pl.DataFrame:
    """Long times without a record of the thread that lie in an op: `at`, `until` and the op's row.

    A call that takes long is a record of its own.
    """
    launching = recorded.calls.filter(pl.col("api").str.contains(causes.LAUNCH))["thread"].unique().implode()
    keys = ["phase", "burst", "thread"]
    ops = recorded.ops.with_columns(
        op_row=pl.int_range(pl.len(), dtype=pl.Int64), above=pl.Series(recorded.parents)
    )
    ops = ops.filter(pl.col("kind").ne_missing("python"))
    calls = recorded.calls.with_columns(above=pl.Series(rows_of(recorded.ops, recorded.calls, "op")))
    # After a record begins the thread is in it, after it ends in what is above it.
    edges = [
        _edges(ops, keys, pl.col("op_row"), begins=True),
        _edges(ops, keys, pl.col("above"), begins=False),
        _edges(calls, keys, pl.lit(NONE, pl.Int64), begins=True),
        _edges(calls, keys, pl.col("above"), begins=False),
    ]
    rows = pl.concat(edges).filter(pl.col("thread").is_in(launching))
    rows = rows.sort(*keys, "at", "begins", "tie", maintain_order=True)
    rows = rows.with_columns(until=pl.col("at").shift(-1).over(keys))
    long = pl.col("until") - pl.col("at") >= SHORT_NS
    return rows.filter(long, pl.col("inside") != NONE).rename({"inside": "op_row"})


def _edges(records: pl.DataFrame, keys: list[str], inside: pl.Expr, *, begins: bool) -> pl.DataFrame:
    """At one time ends come first, inner ones before outer ones, then begins, the other way round."""
    at, other = ("start_ns", "end_ns") if begins else ("end_ns", "start_ns")
    longer = records.filter(pl.col("start_ns") < pl.col("end_ns"))
    return longer.select(*keys, at=at, inside=inside, begins=pl.lit(begins), tie=-pl.col(other))


def _held(recorded: Recorded, name: str, rows: pl.DataFrame) -> Held:
    windows = recorded.account.windows
    assert windows is not None and recorded.steps
    used = Spans(windows.starts[windows.used], windows.ends[windows.used])
    starts, ends = rows["at"].to_numpy(), rows["until"].to_numpy()
    stretches = intersect(union(starts, ends), used)
    busy = union(recorded.kernels["start_ns"].to_numpy(), recorded.kernels["end_ns"].to_numpy())
    every = recorded.ops.filter(name=name)
    whole = intersect(union(every["start_ns"].to_numpy(), every["end_ns"].to_numpy()), used)
    lines = every["source"].drop_nulls().mode().sort()
    return Held(
        name,
        stretches.length / recorded.steps / MS,
        subtract(stretches, busy).length / recorded.steps / MS,
        rows.filter(pl.Series(covered(used, starts, ends) > 0))["op_row"].n_unique() / recorded.steps,
        stretches.length / whole.length if whole.length else 0.0,
        lines[0] if len(lines) else None,
    )
