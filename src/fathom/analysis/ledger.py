"""The ledger of one device: every nanosecond of its windows under exactly one entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.analysis.busy import share
from fathom.analysis.device import ENTRIES, DeviceWork
from fathom.analysis.gaps import Row, explain
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, overlaps
from fathom.analysis.windows import Windows

SCHEMA = {"window": pl.Int64, "entry": pl.String, "detail": pl.String, "ns": pl.Int64, "count": pl.Int64}


@dataclass
class Ledger:
    """`rows` is a frame of SCHEMA: entries by window index, summing to each window's length."""

    windows: Windows
    rows: pl.DataFrame
    carried_in_ns: Array  # by window: work inside it that began before it
    carried_out_ns: Array  # work that began before its end, after its end


def device_ledger(work: DeviceWork, windows: Windows, host: dict[int, HostRecords]) -> Ledger:
    """The partition of each window of one device; `host` holds the records of each burst."""
    bursts = np.unique(windows.bursts).tolist()
    frames = [_burst(work.of(burst), windows, host[burst], burst) for burst in bursts]
    rows = pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)
    return Ledger(windows, rows.sort("window", "ns", descending=[False, True]), *_carried(work, windows))


def _burst(work: DeviceWork, windows: Windows, host: HostRecords, burst: int) -> pl.DataFrame:
    mine = np.flatnonzero(windows.bursts == burst)
    starts, ends = windows.starts[mine], windows.ends[mine]
    busy = share(work, starts, ends)
    idle = explain(busy.idle, work, host, starts, ends)
    counts = _counts(work, starts, ends)
    rows: list[Row] = []
    for window, group, ns in zip(busy.window.tolist(), busy.group.tolist(), busy.ns.tolist(), strict=True):
        kind, detail = work.groups[group]
        rows.append((window, ENTRIES[kind], detail, ns, counts.get((window, group), 0)))
    return collect(rows + idle, mine)


def collect(rows: list[Row], windows: Array) -> pl.DataFrame:
    """A frame of SCHEMA from the rows of one burst, whose windows have the numbers `windows`."""
    names = list(SCHEMA)
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row").group_by(names[:3], maintain_order=True)
    counted = pl.when(pl.col("count").count() > 0).then(pl.col("count").sum())
    summed = frame.agg(pl.col("ns").sum(), counted.alias("count")).filter(pl.col("ns") > 0)
    window = pl.Series("window", windows[summed["window"].to_numpy()], pl.Int64)
    return summed.with_columns(window)


def _counts(work: DeviceWork, starts: Array, ends: Array) -> dict[tuple[int, int], int]:
    """Pieces that begin in each window, by (window, group)."""
    window = np.searchsorted(starts, work.starts, "right") - 1
    inside = (window >= 0) & (work.starts < ends[np.maximum(window, 0)])
    width = len(work.groups)
    keys, counts = np.unique(window[inside] * width + work.group[inside], return_counts=True)
    return {divmod(key, width): count for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}


def _carried(work: DeviceWork, windows: Windows) -> tuple[Array, Array]:
    """By window: what pieces from before it take of it, and what its own take after it."""
    count = len(windows.starts)
    piece, window, parts = overlaps(Spans(work.starts, work.ends), Spans(windows.starts, windows.ends))
    inside = np.where(work.starts[piece] < windows.starts[window], parts.ends - parts.starts, 0)
    beyond = np.maximum(work.ends[piece] - windows.ends[window], 0)
    return _sum(window, inside, count), _sum(window, beyond, count)


def _sum(window: Array, ns: Array, count: int) -> Array:
    return np.bincount(window, weights=ns, minlength=count).astype(np.int64)
