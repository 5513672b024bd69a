"""The ledger of one device, which assigns every nanosecond of its windows to exactly one entry."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.busy import share
from fathom.analysis.device import ENTRIES, DeviceWork
from fathom.analysis.gaps import WindowRow, explain
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, overlaps
from fathom.analysis.sampled import few_lines
from fathom.analysis.windows import Windows

_PIECES = {"window": pl.Int64, "entry": pl.String, "detail": pl.String, "own_ns": pl.Int64}
SCHEMA = {"window": pl.Int64, "entry": pl.String, "detail": pl.String, "ns": pl.Int64, "count": pl.Int64}


class Ledger(msgspec.Struct):
    """The ledger of one device: `rows` has the columns of SCHEMA, and sums to each window's length in ns.

    `own` has window, entry, detail and own_ns: the full durations of the entry's pieces in the window,
    including the parts that other work hides. Rates refer to these. It is empty for a processor, whose ops
    hide nothing.
    """

    windows: Windows
    rows: pl.DataFrame
    carried_in_ns: Array  # per window: ns inside it of work that began before it
    carried_out_ns: Array  # per window: ns after its end of work that began before its end
    own: pl.DataFrame = msgspec.field(default_factory=lambda: pl.DataFrame(schema=_PIECES))


def device_ledger(work: DeviceWork, windows: Windows, host: dict[int, HostRecords]) -> Ledger:
    """Return the ledger of one device's windows; `host` has the host's records of each burst."""
    bursts = np.unique(windows.bursts).tolist()
    frames = [_burst(work.of(burst), windows, host[burst], burst) for burst in bursts]
    rows = pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)
    rows = few_lines(rows).sort("window", "ns", descending=[False, True])
    return Ledger(windows, rows, *_carried(work, windows), _own(work, windows))


def _own(work: DeviceWork, windows: Windows) -> pl.DataFrame:
    """Return the durations of pieces inside windows, by window and entry; concurrent pieces count in full."""
    piece, window, parts = overlaps(Spans(work.starts, work.ends), Spans(windows.starts, windows.ends))
    mine = work.burst[piece] == windows.bursts[window]
    width = max(len(work.groups), 1)
    keys, inverse = np.unique((window * width + work.group[piece])[mine], return_inverse=True)
    lengths = np.bincount(inverse, weights=(parts.ends - parts.starts)[mine], minlength=len(keys))
    rows = [
        (key // width, ENTRIES[work.groups[key % width][0]], work.groups[key % width][1], int(ns))
        for key, ns in zip(keys.tolist(), lengths.tolist(), strict=True)
    ]
    return pl.DataFrame(rows, schema=_PIECES, orient="row")


def _burst(work: DeviceWork, windows: Windows, host: HostRecords, burst: int) -> pl.DataFrame:
    mine = np.flatnonzero(windows.bursts == burst)
    starts, ends = windows.starts[mine], windows.ends[mine]
    busy = share(work, starts, ends)
    idle = explain(busy.idle, work, host, starts, ends)
    counts = _counts(work, starts, ends)
    rows: list[WindowRow] = []
    for window, group, ns in zip(busy.window.tolist(), busy.group.tolist(), busy.ns.tolist(), strict=True):
        kind, detail = work.groups[group]
        rows.append((window, ENTRIES[kind], detail, ns, counts.get((window, group), 0)))
    return collect(rows + idle, mine)


def collect(rows: list[WindowRow], windows: Array) -> pl.DataFrame:
    """Return a frame of SCHEMA from the rows of one burst; `windows` are the indices of its windows."""
    names = list(SCHEMA)
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row").group_by(names[:3], maintain_order=True)
    counted = pl.when(pl.col("count").count() > 0).then(pl.col("count").sum())
    summed = frame.agg(pl.col("ns").sum(), counted.alias("count")).filter(pl.col("ns") > 0)
    window = pl.Series("window", windows[summed["window"].to_numpy()], pl.Int64)
    return summed.with_columns(window)


def _counts(work: DeviceWork, starts: Array, ends: Array) -> dict[tuple[int, int], int]:
    """Return the count of pieces that begin in each window, by (window, group)."""
    window = np.searchsorted(starts, work.starts, "right") - 1
    inside = (window >= 0) & (work.starts < ends[np.maximum(window, 0)])
    width = len(work.groups)
    keys, counts = np.unique(window[inside] * width + work.group[inside], return_counts=True)
    return {divmod(key, width): count for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}


def _carried(work: DeviceWork, windows: Windows) -> tuple[Array, Array]:
    """Return per window the ns inside it of earlier pieces, and the ns of its pieces after its end."""
    count = len(windows.starts)
    piece, window, parts = overlaps(Spans(work.starts, work.ends), Spans(windows.starts, windows.ends))
    inside = np.where(work.starts[piece] < windows.starts[window], parts.ends - parts.starts, 0)
    beyond = np.maximum(work.ends[piece] - windows.ends[window], 0)
    return _sum(window, inside, count), _sum(window, beyond, count)


def _sum(window: Array, ns: Array, count: int) -> Array:
    return np.bincount(window, weights=ns, minlength=count).astype(np.int64)
