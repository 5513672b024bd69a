"""GPU metrics of an export (`nsys profile --gpu-metrics-devices`) as samples of counters."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.sounding.events.database import Database
from fathom.sounding.schema import conform, empty

TABLE, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_DEVICE = 0xFF  # bits of a type that are the GPU's number


def samples(base: Database, zero_ns: int) -> tuple[pl.DataFrame, list[list[str]]]:
    """Return the `samples` table, and the names of the counters in each of its groups.

    A sample covers the time since the one before it, and the first one has no length.
    """
    rows = base.read(TABLE, {"timestamp": int, "typeId": int, "metricId": int, "value": float})
    if len(rows) == 0 or rows.width < 4:
        return empty("samples"), []
    names = base.read(NAMES, {"typeId": int, "metricId": int, "metricName": str})
    keys = [key for key in ("typeId", "metricId") if key in names.columns]
    if "metricName" not in names.columns or "metricId" not in keys:
        return empty("samples"), []
    named = rows.drop_nulls().join(names.drop_nulls().unique(keys, keep="first"), on=keys)
    frames: list[pl.DataFrame] = []
    groups: list[list[str]] = []
    for (device,), part in named.group_by(pl.col("typeId") & _DEVICE, maintain_order=True):
        wide = part.pivot("metricName", index="timestamp", values="value", aggregate_function="first")
        wide = wide.sort("timestamp")
        frames.append(_frame(wide, int(device), len(groups), zero_ns))
        groups.append(wide.columns[1:])
    return (pl.concat(frames) if frames else empty("samples")), groups


def _frame(wide: pl.DataFrame, device: int, group: int, zero_ns: int) -> pl.DataFrame:
    ends = wide["timestamp"].to_numpy() + zero_ns
    values = wide.drop("timestamp").cast(pl.Float32).fill_null(np.nan).to_numpy()
    rows = pl.DataFrame(
        {
            "device": np.full(len(ends), device),
            "group": np.full(len(ends), group),
            "start_ns": np.concatenate([ends[:1], ends[:-1]]),
            "end_ns": ends,
            "values": pl.Series(values.tolist(), dtype=pl.List(pl.Float32)),
        }
    )
    return conform("samples", rows.with_columns(phase=pl.lit("timeline"), burst=pl.lit(0)))
