"""Events of the framework's allocator on devices, in traces recorded with `profile_memory`."""

from __future__ import annotations

import polars as pl

from fathom.sounding.kineto.arrays import nullable
from fathom.sounding.kineto.columns import TraceColumns
from fathom.sounding.kineto.times import DAMAGED
from fathom.sounding.schema import conform


def memory_table(columns: TraceColumns, base_ns: int, phase: str) -> pl.DataFrame:
    """Build the table: allocations and frees ordered by time, then a row with each device's peak.

    Host allocations are left out. `columns` releases its allocator events.
    """
    events = columns.allocator.take()
    good = (events["device"] >= 0) & (events["start"] != DAMAGED)
    kept = {name: nullable(array[good]) for name, array in events.items()}
    named = pl.when(pl.col("size") < 0).then(pl.lit("free")).otherwise(pl.lit("alloc"))
    rows = pl.DataFrame(kept).select(
        "device",
        "allocated",
        "reserved",
        time_ns=pl.col("start") + base_ns,
        event=named,
        size=pl.col("size").abs(),
    )
    peaks = rows.group_by("device", maintain_order=True).agg(
        pl.col("allocated", "reserved").max(), pl.col("time_ns").max(), event=pl.lit("peak")
    )
    both = pl.concat([rows.sort("time_ns", maintain_order=True), peaks], how="diagonal")
    return conform("memory", both.with_columns(phase=pl.lit(phase)))
