"""Loader workers' time for batches: the pace that they can hold, and which waits were only for the hand-over.

Workers of a loader make batches in turn, each starting the next while the program still computes. So a batch
cannot be ready sooner than its worker needs for it, and over many batches their pace is the mean time to make
one over the number of workers.
"""

from __future__ import annotations

import polars as pl

from fathom.sounding import Store

PACE_NS, WORKERS, READY = "pace_ns", "workers", "was_ready"
COLUMNS = {PACE_NS: pl.Float64, WORKERS: pl.Int64, READY: pl.Boolean}
MARGIN = 0.2  # of the time to make a batch: workers also pass it on, which is not measured
LONGER = 2.0  # times the wait: a batch that was ready for this long was not waited for
# Longer waits are for the first batches of an epoch: the larger of these shares of the time to make a batch
# and of the median wait.
HANDED, USUAL = 0.5, 2.0
MEASURED = ("clean", "summary", "timeline")


def with_pace(waits: pl.DataFrame, store: Store, rank: int) -> pl.DataFrame:
    """Add the loader's pace to each wait for a batch: COLUMNS, null where it is unknown."""
    paces = _paces(store.table("input", rank).collect())
    return waits.join(paces, on="start_ns", how="left", maintain_order="left")


def _paces(batches: pl.DataFrame) -> pl.DataFrame:
    """Return start_ns and COLUMNS of the batches that workers made."""
    pin = pl.col("pin_ns").fill_null(0)
    made = batches.drop_nulls(["worker", "fetch_ns", "start_ns", "wait_ns"]).with_columns(
        fetched=pl.col("fetch_ns") + pl.col("collate_ns").fill_null(0), pinned=pin
    )
    made = made.sort("loader", "start_ns").with_columns(since=_since_ready())
    took, wait = pl.col("fetched") + pl.col("pinned"), pl.col("wait_ns")
    long = pl.max_horizontal(MARGIN * took, LONGER * wait)
    ready = (pl.col("since") >= long) & (
        wait <= pl.max_horizontal(HANDED * took, USUAL * wait.median().over("loader"))
    )
    usual = made.join(_usual(made), on="loader", how="left", maintain_order="left")
    usual = usual.with_columns(**{READY: ready.fill_null(False)}).unique("start_ns", keep="first")
    return usual.select("start_ns", *(pl.col(name).cast(kind) for name, kind in COLUMNS.items()))


def _since_ready() -> pl.Expr:
    """Return how long a batch was ready at least: its worker began it once the one before was taken."""
    before = (pl.col("start_ns") + pl.col("wait_ns")).shift(1).over("loader", "worker")
    return pl.col("start_ns") - before - pl.col("fetched") - pl.col("pinned")


def _usual(made: pl.DataFrame) -> pl.DataFrame:
    """Return the pace and number of workers by loader; a single thread pins the batches."""
    steady = made.filter(pl.col("phase").is_in(MEASURED))
    rows = steady if steady.height else made
    workers = pl.col("worker").n_unique()
    pace = pl.max_horizontal(pl.col("fetched").mean() / workers, pl.col("pinned").mean())
    return rows.group_by("loader").agg(pace.alias(PACE_NS), workers.alias(WORKERS))
