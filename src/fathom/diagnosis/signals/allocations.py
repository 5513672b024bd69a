"""Memory requested from the driver, and ops that autotune."""

from __future__ import annotations

import polars as pl

from fathom.analysis import causes
from fathom.analysis.entries import Entry
from fathom.analysis.work import rows_of
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import DriverCalls, Searches
from fathom.diagnosis.signals.value import most_common, signal
from fathom.units import NS_PER_MS

HOST_MEMORY = "Host"  # page-locked memory: not the device's
RUN = 4  # consecutive frees outside ops: the cache is emptied; tensors are freed one by one
MOSTLY = 0.5  # of the frees that do not make room
_OP = ["phase", "burst", "op"]
TIMED = r"^(cuda|hip)EventSynchronize$"
LEAST = 3  # events that one op waits for: only ops that time kernels do


@signal("host.asked", "per step")
def asked(recorded: Recorded) -> list[DriverCalls]:
    """Return driver calls by reason: `room` (an op frees, then allocates), `emptied` (many frees at once,
    outside ops), `search` (an op that tries kernels does both) or `new` (all others).
    """
    rows = _runs(_calls(recorded))
    reasons = (
        rows.filter("inside")
        .group_by("why")
        .agg(
            frees=pl.col("free").sum(),
            asks=(~pl.col("free")).sum(),
            ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            steps=pl.col("window").n_unique(),
            **{name: pl.col(name).drop_nulls().mode().sort().first() for name in ("source", "region")},
        )
    )
    count = recorded.steps
    return [
        DriverCalls(why, frees / count, asks / count, ns / count / NS_PER_MS, steps / count, source, region)
        for why, frees, asks, ns, steps, source, region in reasons.sort("ns", descending=True).iter_rows()
    ]


def _calls(recorded: Recorded) -> pl.DataFrame:
    """Return calls that allocate or free device memory, and whether an op made them and is autotuning.

    A library that starts frees and allocates too, so calls in a first use are left out.
    """
    rows = recorded.own_calls
    allocates = pl.col("api").str.contains(causes.APIS[Entry.ALLOCATOR.cause].pattern)
    rows = rows.filter(allocates & ~pl.col("api").str.contains(HOST_MEMORY))
    rows = rows.filter(~recorded.loading(rows))
    rows = rows.sort("phase", "burst", "start_ns").with_row_index("row")
    above = rows_of(recorded.ops, rows, "op")
    kinds = recorded.ops["kind"].to_list()
    window = recorded.window(rows)
    return rows.with_columns(
        free=pl.col("api").str.contains(causes.FREES),
        by_op=pl.Series([row >= 0 and kinds[row] == "op" for row in above.tolist()], dtype=pl.Boolean),
        search=pl.Series([row in searching(recorded) for row in above.tolist()], dtype=pl.Boolean),
        window=window,
        inside=window >= 0,
        source=recorded.paths.marks("ran", above),
        region=recorded.paths.marks("region", above),
    )


def _runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the column `why`, which for a run of similar calls by one op depends on the next run."""
    rows = rows.with_columns(run=pl.struct(*_OP, "free").rle_id())
    runs = rows.group_by("run", maintain_order=True).agg(
        *(pl.col(name).first() for name in (*_OP, "free", "by_op", "search", "inside")), length=pl.len()
    )
    same = pl.struct(*_OP).eq_missing(pl.struct(*_OP).shift(-1)) & pl.col("by_op")
    runs = runs.with_columns(room=pl.col("free") & same)
    runs = runs.with_columns(room=pl.col("room") | pl.col("room").shift(1, fill_value=False))
    runs = runs.with_columns(
        many=pl.col("free") & ~pl.col("by_op") & ~pl.col("room") & (pl.col("length") >= RUN)
    )
    others = runs.filter("inside", pl.col("free") & ~pl.col("room") & ~pl.col("search"))
    total, in_runs = int(others["length"].sum()), int(others.filter("many")["length"].sum())
    emptied = bool(total) and in_runs >= MOSTLY * total
    why = (
        pl.when(pl.col("search"))
        .then(pl.lit("search"))
        .when("room")
        .then(pl.lit("room"))
        .when(pl.lit(emptied))
        .then(pl.lit("emptied"))
        .otherwise(pl.lit("new"))
    )
    return rows.join(runs.select("run", why=why), on="run", how="left")


def searching(recorded: Recorded) -> set[int]:
    """Return the rows of ops that wait for several of the events that they record."""
    if "searching" not in recorded.read:
        calls = recorded.calls.filter(pl.col("api").str.contains(TIMED)).drop_nulls("op")
        above = pl.Series("row", rows_of(recorded.ops, calls, "op"), dtype=pl.Int64)
        counts = above.filter(above >= 0).value_counts()
        framework = recorded.ops["kind"].eq_missing("op").to_list()
        many = counts.filter(pl.col("count") >= LEAST)["row"].to_list()
        recorded.read["searching"] = {row for row in many if framework[row]}
    return recorded.read["searching"]


@signal("host.searches", "per step")
def searches(recorded: Recorded) -> Searches | None:
    """Return autotuning in the timeline and in the step with stacks."""
    rows = sorted(searching(recorded))
    if not rows:
        return Searches(0.0, 0.0, 0.0, "")
    ops = recorded.ops[rows].with_columns(window=recorded.window(recorded.ops[rows]))
    inside = ops.filter(pl.col("window") >= 0)
    ns = int((inside["end_ns"] - inside["start_ns"]).sum())
    source = next(filter(None, (recorded.paths.mark("source", row) for row in rows)), None)
    steps = inside["window"].n_unique() / recorded.steps
    name = str(most_common(ops["name"]))
    return Searches(recorded.per_step_ms(ns), inside.height / recorded.steps, steps, name, source)
