"""Python frames of a trace as rows of the table `stacks`, where no op or runtime call runs."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.sounding.events.arrays import Arrays
from fathom.sounding.schema import empty

LEAST_NS = 2_000  # shorter pauses between two records are left out
_FRAME = r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$"


def frame_stacks(frames: Arrays, callers: np.ndarray, names: pl.Series, busy: list[Arrays]) -> pl.DataFrame:
    """Return a row at the start and the end of each pause of a thread, with the user's innermost frame.

    `callers` has the row of the frame around each frame, or -1. `busy` are ops and calls. A trace shows the
    first line of each function, not the line that ran.
    """
    threads = np.unique(frames["thread"])
    parts = [_of_thread(frames, callers, busy, int(thread)) for thread in threads]
    rows = [part for part in parts if len(part)]
    if not rows:
        return empty("stacks")
    table = pl.concat(rows).with_columns(name=names.gather(pl.concat(rows)["name"]))
    parsed = table.with_columns(found=pl.col("name").str.extract_groups(_FRAME)).unnest("found")
    parsed = parsed.drop_nulls("function").with_columns(source=pl.format("{}:{}", "file", "line"))
    return parsed.select(
        "time_ns",
        "thread",
        "function",
        "source",
        running=pl.lit(True),
        stack=pl.format("{} ({})", "function", "source"),
    )


def _of_thread(frames: Arrays, callers: np.ndarray, busy: list[Arrays], thread: int) -> pl.DataFrame:
    rows = np.flatnonzero(frames["thread"] == thread)
    at, inside = _innermost(frames, callers, rows)
    starts, ends = _union([(each["start"], each["end"]) for each in _on(busy, thread)])
    points = np.unique(np.concatenate((at, starts, ends)))
    begin, end = points[:-1], points[1:]
    frame = inside[np.searchsorted(at, begin, "right") - 1]
    frame = np.where(begin >= at[0], frame, -1)
    nearest = np.searchsorted(starts, begin, "right") - 1
    works = (nearest >= 0) & (begin < np.append(ends, 0)[nearest])
    mine = (frame >= 0) & ~works & (end - begin >= LEAST_NS)
    times = np.column_stack((begin[mine], end[mine] - 1)).ravel()
    named = np.repeat(frames["name"][frame[mine]], 2)
    return pl.DataFrame({"time_ns": times, "thread": np.full(len(times), thread), "name": named})


def _on(tables: list[Arrays], thread: int) -> list[Arrays]:
    rows = [table["thread"] == thread for table in tables]
    return [
        {name: table[name][mine] for name in ("start", "end")}
        for table, mine in zip(tables, rows, strict=True)
    ]


def _innermost(frames: Arrays, callers: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the instants at which the innermost frame changes, and the frame from each of them on, or -1."""
    start, end = frames["start"][rows], frames["end"][rows]
    times, inside = np.concatenate((start, end)), np.concatenate((rows, callers[rows]))
    begins = np.repeat([1, 0], len(rows))
    # At one instant, ends come first, inner ones before outer ones; then starts, outer ones first.
    tie = np.concatenate((-end, -start))
    order = np.lexsort((tie, begins, times))
    times, inside = times[order], inside[order]
    last = np.append(times[1:] != times[:-1], True)
    return times[last], inside[last]


def _union(spans: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the disjoint spans that cover the same time, sorted."""
    start, end = (np.concatenate([span[side] for span in spans]) for side in (0, 1))
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > reach[:-1])
    return start[first], reach[np.append(np.flatnonzero(first)[1:] - 1, len(reach) - 1)]
