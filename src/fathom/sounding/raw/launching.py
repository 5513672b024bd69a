"""Launches whose recorded start cannot be true, because later calls began before it.

CUPTI numbers the calls of a process in their order. Where it recorded no calls, they are made from the queue
times of kernels. If the host is far ahead of the device, many of these say when the device came to the kernel
instead. Such a call began between its neighbours.
"""

from __future__ import annotations

import numpy as np
import polars as pl

TOLERANCE_NS = 50_000  # threads number and begin their calls at almost the same time


def in_order(launches: pl.DataFrame) -> pl.DataFrame:
    """`launches` with the starts and ends of these calls interpolated by correlation, burst by burst."""
    if launches.is_empty():
        return launches
    rows = launches.with_row_index("row")
    fixed = [_fixed(burst) for _, burst in rows.group_by("phase", "burst", maintain_order=True)]
    return pl.concat(fixed).sort("row").drop("row")


def _fixed(rows: pl.DataFrame) -> pl.DataFrame:
    """One burst. Calls without a correlation stay as they are, and so do the last ones of all."""
    order = rows.drop_nulls(["correlation", "start_ns"]).sort("correlation", "start_ns")
    starts = order["start_ns"].to_numpy()
    if len(starts) < 2:
        return rows
    following = np.minimum.accumulate(starts[::-1])[::-1]
    late = starts > following + TOLERANCE_NS
    if not late.any():
        return rows
    number = order["correlation"].to_numpy()
    began = np.interp(number, number[~late], starts[~late]).astype(np.int64)
    ends = order["end_ns"].fill_null(strategy="zero").to_numpy()
    took = np.clip(np.append(np.diff(began), 0), 0, np.maximum(ends - starts, 0))
    times = order.select("row").with_columns(
        at=pl.Series(np.where(late, began, starts)), until=pl.Series(np.where(late, began + took, ends))
    )
    joined = rows.join(times, on="row", how="left", maintain_order="left")
    moved = pl.col("at").is_not_null() & (pl.col("at") != pl.col("start_ns"))
    return joined.with_columns(
        start_ns=pl.when(moved).then("at").otherwise("start_ns"),
        end_ns=pl.when(moved).then("until").otherwise("end_ns"),
    ).drop("at", "until")
