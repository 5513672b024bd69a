"""The ledger of programs without devices: ops are the work of the processor."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from fathom.analysis.entries import Entry
from fathom.analysis.gaps import WindowRow, host_side
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, intersect, overlaps
from fathom.analysis.ledger import SCHEMA, Ledger, collect
from fathom.analysis.sampled import few_lines
from fathom.analysis.windows import Windows


def processor_ledger(ops: pl.DataFrame, windows: Windows, host: dict[int, HostRecords]) -> Ledger:
    """Return a ledger that assigns each ns of the windows to a recorded cause, else to the innermost op.

    `ops` has thread, kind, name, start_ns, end_ns and burst.
    """
    own = ops.filter(pl.col("kind") == "op")
    frames = [
        _burst(own.filter(burst=burst, thread=host[burst].caller), windows, host[burst], burst)
        for burst in np.unique(windows.bursts).tolist()
    ]
    rows = pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)
    nothing = np.zeros(len(windows.starts), np.int64)
    rows = few_lines(rows)
    return Ledger(windows, rows.sort("window", "ns", descending=[False, True]), nothing, nothing)


def _burst(ops: pl.DataFrame, windows: Windows, host: HostRecords, burst: int) -> pl.DataFrame:
    mine = np.flatnonzero(windows.bursts == burst)
    bounds = Spans(windows.starts[mine], windows.ends[mine])
    rows = host_side(bounds, host, host.caller, *bounds)
    for (cause, _), spans in host.activity(host.caller):
        if cause == Entry.DISPATCHING.cause:  # ops are the work here
            work = _works(ops, intersect(spans, bounds), bounds)
            rows += work + [(window, Entry.DISPATCHING, "", -ns, None) for window, _, _, ns, _ in work]
    return collect(rows, mine)


def _works(ops: pl.DataFrame, spans: Spans, bounds: Spans) -> list[WindowRow]:
    """Return the self time of ops within `spans` by window and name, and their count begun in each window."""
    names = ops["name"].unique(maintain_order=True)
    name = ops["name"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    index, segments = innermost(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    piece, _, inside = overlaps(segments, spans)
    key = np.searchsorted(bounds.ends, inside.starts, "right") * len(names) + name[index[piece]]
    keys, inverse = np.unique(key, return_inverse=True)
    spent = np.bincount(inverse, weights=inside.ends - inside.starts, minlength=len(keys)).astype(np.int64)
    begun = Counter(zip(*_begun(ops["start_ns"].to_numpy(), name, bounds), strict=True))
    return [
        (window, Entry.OPS, names[code], ns, begun[window, code])
        for (window, code), ns in zip(
            (divmod(k, len(names)) for k in keys.tolist()), spent.tolist(), strict=True
        )
    ]


def _begun(starts: Array, name: Array, bounds: Spans) -> tuple[list[int], list[int]]:
    """Return the window and name of every op that begins inside a window."""
    op, window, _ = overlaps(Spans(starts, starts + 1), bounds)
    return window.tolist(), name[op].tolist()


def innermost(starts: Array, ends: Array) -> tuple[Array, Spans]:
    """Return the index of the innermost op of each segment, and the sorted disjoint segments of time.

    Ops of one thread nest. If clock errors make two ops overlap, the later one counts as the inner one.
    """
    order = np.lexsort((-ends, starts))
    segments: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []  # op, end
    cursor = 0

    def run(op: int, until: int) -> None:
        nonlocal cursor
        if until > cursor:
            segments.append((op, cursor, until))
            cursor = until

    for op, start, end in zip(order.tolist(), starts[order].tolist(), ends[order].tolist(), strict=True):
        while stack and stack[-1][1] <= start:
            run(*stack.pop())
        if stack:
            run(stack[-1][0], start)
        cursor = max(cursor, start)
        stack.append((op, end))
    while stack:
        run(*stack.pop())
    table = np.array(segments, np.int64).reshape(-1, 3)
    return table[:, 0], Spans(table[:, 1], table[:, 2])
