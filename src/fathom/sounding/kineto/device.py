"""The device's side of a trace: a table of kernels, copies and sets, and one of the allocator's events."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.sounding.events import integrity
from fathom.sounding.events.arrays import DAMAGED, nullable
from fathom.sounding.events.nesting import CALL, OP, nest, through
from fathom.sounding.events.work import by_name
from fathom.sounding.families import with_families
from fathom.sounding.kineto.columns import TraceColumns
from fathom.sounding.manifest import Problem
from fathom.sounding.schema import conform

_KINDS = pl.Series(["compute", "copy", "set"])
_NUMBERS = (
    "device", "stream", "correlation", "registers", "shared_bytes", "local_bytes", "graph_node", "bytes",
)  # fmt: skip


def device_table(columns: TraceColumns, base_ns: int, problems: list[Problem]) -> pl.DataFrame:
    """Return the table of kernels, ordered by time; `columns` releases its device work."""
    work = integrity.sound(columns.device.take(), base_ns, columns.nameless, "kernels", problems)
    order = np.argsort(work["start"], kind="stable")
    work = {name: array[order] for name, array in work.items()}
    dims = columns.dims.texts()
    kernels = pl.DataFrame(
        {
            **{name: nullable(work[name]) for name in _NUMBERS},
            "kind": _KINDS.gather(work["kind"]),
            "name": columns.names.texts().gather(work["name"]),
            "start_ns": work["start"],
            "end_ns": work["end"],
            "grid": dims.gather(work["grid"]),
            "block": dims.gather(work["block"]),
        }
    )
    return with_families(by_name(kernels))


def memory_table(columns: TraceColumns, base_ns: int, phase: str, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the `memory` table: allocations and frees ordered by time, then a row with each device's peak.

    Only traces recorded with `profile_memory` have these events. Events of the host are left out beside those
    of a device, and their totals, which begin with the profiler. `columns` releases its events.
    """
    events = columns.allocator.take()
    on_device = events["device"] >= 0
    good = (on_device | ~on_device.any()) & (events["start"] != DAMAGED)
    kept = {name: nullable(array[good]) for name, array in events.items()}
    named = pl.when(pl.col("size") < 0).then(pl.lit("free")).otherwise(pl.lit("alloc"))
    total = pl.when(pl.col("device") >= 0).then(pl.col("allocated", "reserved"))
    rows = pl.DataFrame(kept).select(
        pl.col("device").clip(-1),
        total,
        "address",
        "thread",
        time_ns=pl.col("start") + base_ns,
        event=named,
        size=pl.col("size").abs(),
    )
    rows = rows.with_columns(op=_ops_at(rows, ops)).drop("thread")
    known = rows.filter(pl.col("device") >= 0)
    peaks = known.group_by("device", maintain_order=True).agg(
        pl.col("allocated", "reserved").max(), pl.col("time_ns").max(), event=pl.lit("peak")
    )
    both = pl.concat([rows.sort("time_ns", maintain_order=True), peaks], how="diagonal")
    return conform("memory", both.with_columns(phase=pl.lit(phase)))


def _ops_at(rows: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Return the name of the innermost op around each row's time on its thread."""
    known = ops.filter(pl.col("kind") == "op").select("thread", "start_ns", "end_ns", "name")
    points = rows.select("thread", start_ns="time_ns", end_ns="time_ns")
    both = pl.concat([known.drop("name"), points], how="vertical_relaxed")
    kinds = np.repeat([OP, CALL], [known.height, points.height])
    thread, start, end = (both[name].fill_null(0).to_numpy() for name in ("thread", "start_ns", "end_ns"))
    around = nest(thread, start, end, kinds).op[known.height :]
    return through(np.arange(known.height), around).replace_strict(
        dict(enumerate(known["name"].to_list())), default=None, return_dtype=pl.String
    )
