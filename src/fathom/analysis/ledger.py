"""The ledger of one device, which assigns every nanosecond of its windows to exactly one entry."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct
from fathom.analysis.device import COPY, ENTRIES, DeviceWork
from fathom.analysis.gaps import WindowRow, explain
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, containing, overlaps
from fathom.analysis.sampled import few_lines
from fathom.analysis.windows import Windows

_PIECES = {"window": pl.Int64, "entry": pl.String, "detail": pl.String, "own_ns": pl.Int64}
SCHEMA = {"window": pl.Int64, "entry": pl.String, "detail": pl.String, "ns": pl.Int64, "count": pl.Int64}
IDLE = COPY + 1


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
    bursts = distinct(windows.bursts).tolist()
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
    """Return the number of pieces that begin in each window, by (window, group)."""
    window = containing(Spans(starts, ends), work.starts)
    inside = window >= 0
    width = len(work.groups)
    keys, counts = np.unique(window[inside] * width + work.group[inside], return_counts=True)
    return {divmod(key, width): count for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}


def _carried(work: DeviceWork, windows: Windows) -> tuple[Array, Array]:
    """For each window, return the ns of pieces that started before it, and of its pieces after its end."""
    count = len(windows.starts)
    piece, window, parts = overlaps(Spans(work.starts, work.ends), Spans(windows.starts, windows.ends))
    inside = np.where(work.starts[piece] < windows.starts[window], parts.ends - parts.starts, 0)
    beyond = np.maximum(work.ends[piece] - windows.ends[window], 0)
    return _sum(window, inside, count), _sum(window, beyond, count)


def _sum(window: Array, ns: Array, count: int) -> Array:
    return np.bincount(window, weights=ns, minlength=count).astype(np.int64)


class Busy(msgspec.Struct):
    """Busy time in ns per window and group, in parallel arrays; `idle` are the gaps, not cut at windows."""

    window: Array
    group: Array
    ns: Array
    idle: Spans


def share(work: DeviceWork, starts: Array, ends: Array) -> Busy:
    """Assign each instant of the windows to the first class that runs, shared equally by its running pieces.

    The windows [starts, ends) must be sorted and disjoint. Shares are whole nanoseconds and sum exactly to
    the time of their class.
    """
    points = distinct(np.concatenate((work.starts, work.ends, starts, ends)))
    lengths = np.diff(points)
    level, count = _levels(work, points)
    piece, window, parts = overlaps(Spans(work.starts, work.ends), Spans(starts, ends))
    group = work.group[piece]
    classes = work.classes[group]
    shares: list[tuple[Array, Array, Array]] = []
    for kind in range(IDLE):
        mine = np.flatnonzero(classes == kind)
        holds = np.concatenate(([0], np.cumsum(np.where(level == kind, lengths, 0))))
        each = np.where(level == kind, lengths / np.maximum(count[kind], 1), 0.0)
        sums = np.concatenate(([0.0], np.cumsum(each)))
        first, last = np.searchsorted(points, (parts.starts[mine], parts.ends[mine]))
        totals = np.diff(holds[np.searchsorted(points, (starts, ends))], axis=0)[0]
        shares.append(_rounded(window[mine], group[mine], sums[last] - sums[first], totals))
    window, group, ns = (np.concatenate(column) for column in zip(*shares, strict=True))
    return Busy(window, group, ns, _gaps(points, level))


def _levels(work: DeviceWork, points: Array) -> tuple[Array, list[Array]]:
    """Return the class of each segment between points, and per class the number of pieces that run there."""
    kinds = work.classes[work.group]
    count = []
    level = np.full(max(len(points) - 1, 0), IDLE)
    for kind in range(IDLE):
        mine = kinds == kind
        opens = np.bincount(np.searchsorted(points, work.starts[mine]), minlength=len(points))
        closes = np.bincount(np.searchsorted(points, work.ends[mine]), minlength=len(points))
        count.append(np.cumsum(opens - closes)[:-1])
    for kind in reversed(range(IDLE)):
        level[count[kind] > 0] = kind
    return level, count


def _rounded(window: Array, group: Array, shares: Array, totals: Array) -> tuple[Array, Array, Array]:
    """Return shares by (window, group), rounded to integers that sum to the `totals` of each window.

    Each share is rounded down. The remainder is added in ns to the shares with the largest fractions.
    """
    width = int(group.max(initial=0)) + 1
    keys, inverse = np.unique(window * width + group, return_inverse=True)
    exact = np.bincount(inverse, weights=shares, minlength=len(keys))
    window, group = keys // width, keys % width
    rounded = np.floor(exact + 1e-6).astype(np.int64)
    missing = totals - np.bincount(window, weights=rounded, minlength=len(totals)).astype(np.int64)
    order = np.lexsort((rounded - exact, window))
    rank = np.arange(len(keys)) - np.searchsorted(window[order], window[order], "left")
    sizes = np.bincount(window, minlength=len(totals))[window[order]]
    extra, more = np.divmod(missing[window[order]], np.maximum(sizes, 1))
    rounded[order] += extra + (rank < more)
    return window, group, rounded


def _gaps(points: Array, level: Array) -> Spans:
    """Return the spans in which nothing runs, not cut at window bounds."""
    idle = np.concatenate(([False], level == IDLE, [False]))
    edges = np.flatnonzero(idle[1:] != idle[:-1])
    return Spans(points[edges[::2]], points[edges[1::2]])
