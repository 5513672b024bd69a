"""A replay as tables: the recorded rows at their new times, ready for the ledger."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.weights import Durations


def replayed(
    timeline: Timeline, parts: list[tuple[Part, Durations]], epoch: int, at: Array, *, host: bool
) -> Timeline:
    """The timeline with the times since `epoch` that `at` gives to the instants of its bursts.

    Without `host`, what the host did is left out: windows need no more than marks and device work.
    """
    maps = {part.burst: _Map(part, durations, epoch, at) for part, durations in parts}
    ops, calls, waits = (
        _moved(table if host else table.clear(), ("start_ns", "end_ns"), maps)
        for table in (timeline.ops, timeline.calls, timeline.waits)
    )
    sampled = timeline.stacks if host else timeline.stacks.clear()
    stacks = _moved(sampled, ("time_ns",), maps)
    steps = _apart(_moved(timeline.steps.with_columns(thread=None), ("mark_ns", "end_ns"), maps))
    steps = steps.with_columns(timeline.steps["thread"])
    kernels = _kernels(timeline.kernels, parts, epoch, at, maps)
    return Timeline(timeline.about, steps, ops, calls, kernels, waits, timeline.every, stacks)


class _Map:
    """From recorded to replayed times of one burst's host."""

    def __init__(self, part: Part, durations: Durations, epoch: int, at: Array) -> None:
        self._epoch = epoch
        self._team = part.team.threads
        self._knots, self._elapsed = part.team.knots, durations.elapsed
        self._anchored, self._at = part.anchored(), at[part.anchors()]

    def __call__(self, times: Array, threads: Array | None) -> Array:
        """The team's own records change with its work, others stay as long after its last call.

        `threads`: who made the records; None: the team did.
        """
        last = np.searchsorted(self._anchored, times, "right") - 1
        since = np.maximum(last, 0)
        after = (times - self._anchored[since]).astype(float)
        own = np.ones(len(times), bool) if threads is None else np.isin(threads, list(self._team))
        own &= last >= 0
        worked = np.where(last % 2 == 1, self._inside(since, after), self._worked(since, times))
        moved = np.where(own, worked, after) + self._at[since]
        return self._epoch + np.rint(moved).astype(np.int64)

    def _inside(self, begin: Array, after: Array) -> Array:
        """Of a call that takes longer or shorter, each part does."""
        done = np.minimum(begin + 1, len(self._at) - 1)
        was, now = self._anchored[done] - self._anchored[begin], self._at[done] - self._at[begin]
        return after * np.divide(now, was, out=np.ones(len(now)), where=was > 0)

    def _worked(self, since: Array, times: Array) -> Array:
        """The host's work from its last call on."""
        return self._work(times) - self._work(self._anchored[since])

    def _work(self, times: Array) -> Array:
        if not len(self._knots):
            return np.zeros(len(times))
        return np.interp(times - self._knots[0], self._knots - self._knots[0], self._elapsed)


def _moved(rows: pl.DataFrame, columns: tuple[str, ...], maps: dict[int, _Map]) -> pl.DataFrame:
    if rows.is_empty():
        return rows
    bursts = rows["burst"].fill_null(0).to_numpy()
    threads = None if rows["thread"].dtype == pl.Null else rows["thread"].fill_null(-1).to_numpy()
    return rows.with_columns(_times(rows[name], bursts, threads, maps) for name in columns)


def _apart(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps that take no time any more keep their order: each mark is a nanosecond after the one before."""
    if not (steps["end_ns"] <= steps["mark_ns"]).any():
        return steps
    order = pl.col("mark_ns").rank("ordinal").cast(pl.Int64)
    return steps.with_columns(mark_ns=pl.col("mark_ns") + order, end_ns=pl.col("end_ns") + order + 1)


def _times(column: pl.Series, bursts: Array, threads: Array | None, maps: dict[int, _Map]) -> pl.Series:
    known = column.is_not_null().to_numpy()
    times = column.fill_null(0).to_numpy().copy()
    for burst, moved in maps.items():
        rows = known & (bursts == burst)
        times[rows] = moved(times[rows], None if threads is None else threads[rows])
    return pl.Series(column.name, times).set(pl.Series(~known), None)


def _kernels(
    rows: pl.DataFrame, parts: list[tuple[Part, Durations]], epoch: int, at: Array, maps: dict[int, _Map]
) -> pl.DataFrame:
    start, end = rows["start_ns"].to_numpy().copy(), rows["end_ns"].to_numpy().copy()
    arrived = rows["arrived_ns"].fill_null(-1).to_numpy().copy() if "arrived_ns" in rows.columns else None
    for part, durations in parts:
        ends = at[part.ends]
        begun = np.where(part.pieces.met, at[part.starts], ends - durations.piece)
        some = part.pieces.end > part.pieces.start
        # The ledger knows no work without a duration.
        ends = np.where(some, np.maximum(ends, begun + 1), ends)
        start[part.rows], end[part.rows] = (epoch + np.rint(t).astype(np.int64) for t in (begun, ends))
        if arrived is not None:
            moving = np.rint(ends - durations.piece).astype(np.int64)
            arrived[part.rows] = np.where(part.pieces.met, epoch + moving, -1)
    columns = [pl.Series("start_ns", start), pl.Series("end_ns", end)]
    if arrived is not None:
        columns.append(pl.Series("arrived_ns", arrived).set(pl.Series(arrived < 0), None))
    bursts, threads = rows["burst"].to_numpy(), rows["launcher"].fill_null(-1).to_numpy()
    columns.append(_times(rows["launched"], bursts, threads, maps))
    return rows.with_columns(columns)
