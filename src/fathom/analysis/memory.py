"""Peak memory of the framework's allocator, the device and the host."""

from __future__ import annotations

from statistics import median

import polars as pl

from fathom.analysis.resources import AllocatorPeak, Memory

HOST = -1


def memory_of(events: pl.DataFrame, telemetry: pl.DataFrame, devices: list[int]) -> Memory | None:
    """Return peak memory in bytes; None if nothing was recorded.

    `events` and `telemetry` are the tables of all ranks. The allocator's peaks are the largest of any device;
    `devices` lists each device's peaks if there are several.
    """
    peaks = (
        events.filter(pl.col("event") == "peak", pl.col("allocated").is_not_null())
        .group_by("rank", "device")
        .agg(peak_allocated_bytes=pl.col("allocated").max(), peak_reserved_bytes=pl.col("reserved").max())
        .sort("rank", "device")
    )
    each = [AllocatorPeak(**row) for row in peaks.iter_rows(named=True)]
    reserved = [peak.peak_reserved_bytes for peak in each if peak.peak_reserved_bytes is not None]
    result = Memory(
        peak_allocated_bytes=max((peak.peak_allocated_bytes for peak in each), default=None),
        peak_reserved_bytes=max(reserved, default=None),
        peak_device_bytes=_most(telemetry, devices),
        peak_resident_bytes=_most(telemetry, [HOST]),
        devices=each if len(each) > 1 else [],
    )
    _compare(result, each)
    return None if result == Memory() else result


def _compare(result: Memory, peaks: list[AllocatorPeak]) -> None:
    """Set the rank with the highest peak, and by how much it exceeds the median rank's."""
    by_rank: dict[int, int] = {}
    for peak in peaks:
        by_rank[peak.rank] = max(by_rank.get(peak.rank, 0), peak.peak_allocated_bytes)
    usual = median(by_rank.values()) if len(by_rank) > 1 else 0
    if usual:
        result.largest_on_rank = max(by_rank, key=lambda rank: (by_rank[rank], -rank))
        result.imbalance_share = max(by_rank.values()) / usual - 1


def _most(telemetry: pl.DataFrame, devices: list[int]) -> int | None:
    used = telemetry.filter(pl.col("device").is_in(devices))["memory_bytes"].drop_nulls()
    return int(used.max()) if len(used) else None  # type: ignore[arg-type]
