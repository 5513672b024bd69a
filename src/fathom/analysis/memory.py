"""Peaks of memory: the framework's allocator, the device, the host."""

from __future__ import annotations

from typing import Any

import polars as pl

HOST = -1


def memory(events: pl.DataFrame, telemetry: pl.DataFrame, devices: list[int]) -> dict[str, Any] | None:
    """Bytes at the peak; None where nothing was recorded.

    The allocator's peaks are the largest over devices, which `devices` lists where there are several.
    """
    peaks = (
        events.filter(pl.col("event") == "peak", pl.col("allocated").is_not_null())
        .group_by("rank", "device")
        .agg(peak_allocated_bytes=pl.col("allocated").max(), peak_reserved_bytes=pl.col("reserved").max())
        .sort("rank", "device")
    )
    found: dict[str, Any] = {}
    if peaks.height:
        found |= {name: peaks[name].max() for name in ("peak_allocated_bytes", "peak_reserved_bytes")}
    if (used := _most(telemetry, devices)) is not None:
        found["peak_device_bytes"] = used
    if (resident := _most(telemetry, [HOST])) is not None:
        found["peak_resident_bytes"] = resident
    if peaks.height > 1:
        found["devices"] = peaks.to_dicts()
    return found or None


def _most(telemetry: pl.DataFrame, devices: list[int]) -> int | None:
    used = telemetry.filter(pl.col("device").is_in(devices))["memory_bytes"].drop_nulls()
    return int(used.max()) if len(used) else None  # type: ignore[arg-type]
