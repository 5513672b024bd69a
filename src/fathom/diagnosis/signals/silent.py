"""Long stretches of a launching thread without a record."""

from __future__ import annotations

import polars as pl

from fathom.diagnosis.signals.recorded import Recorded

KEYS = ["phase", "burst", "thread"]
TIMES = ["start_ns", "end_ns"]


def stretches(recorded: Recorded, least_ns: int) -> pl.DataFrame:
    """From `at` to `until`: the rows of the op that the thread is `inside`, and of the one whose record comes
    `before`, NONE for none; and whether it is `calling` the runtime all the time.
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
    """Edges in order: at the same time, ends first (inner before outer), then begins (outer before inner)."""
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
