"""A table of the ranks of a job: time by group of entries, lateness, and peak memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fathom.analysis.communication import LateRank
from fathom.analysis.entries import COLLECTIVES, Entry, cause_of
from fathom.analysis.resources import Memory
from fathom.analysis.results import Device, RankSummary

_COMPUTE = (Entry.COMPUTE, Entry.OPS)


def summaries(
    devices: Sequence[Device],
    late: Sequence[LateRank],
    memory: Memory | None,
    hosts: Mapping[int, str | None],
) -> list[RankSummary]:
    """Return a summary of each rank, by its first device; [] for a single rank."""
    first = {device.rank: device for device in reversed(devices)}
    if len(first) < 2:
        return []
    lateness = {rank.rank: rank for rank in late}
    rows = [_summary(first[rank], lateness.get(rank), hosts.get(rank)) for rank in sorted(first)]
    for row in rows:
        peaks = [peak for peak in (memory.devices if memory else []) if peak.rank == row.rank]
        if peaks:
            largest = max(peaks, key=lambda peak: peak.peak_allocated_bytes)
            row.peak_allocated_bytes = largest.peak_allocated_bytes
            row.peak_reserved_bytes = largest.peak_reserved_bytes
    return rows


def _summary(device: Device, late: LateRank | None, host: str | None) -> RankSummary:
    ms: dict[str, float] = {}
    for row in device.profiled_ledger:
        ms[row.entry] = ms.get(row.entry, 0.0) + row.ms
    entries = late.entries if late else []
    return RankSummary(
        rank=device.rank,
        step_ms=device.total_ms,
        compute_ms=sum(ms.get(entry, 0.0) for entry in _COMPUTE),
        communication_ms=sum(ms.get(entry, 0.0) for entry in COLLECTIVES),
        waiting_ms=ms.get(Entry.WAITING_FOR_PEERS, 0.0),
        moving_ms=ms.get(Entry.MOVING_BYTES, 0.0),
        copy_ms=ms.get(Entry.COPY, 0.0),
        idle_ms=sum(value for entry, value in ms.items() if cause_of(entry)),
        last=late.last if late else 0,
        cost_ms=late.cost_ms if late else 0.0,
        score=late.score if late else 0.0,
        lost_in=entries[0].entry if entries else "",
        host=host,
    )
