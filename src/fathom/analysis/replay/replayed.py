"""A replay as tables: the recorded rows at their new times, ready for the ledger."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.weights import Durations


class Times(msgspec.Struct, frozen=True):
    """A replay of one rank: `at` gives each instant of its parts a time since `epoch`, in nanoseconds."""

    parts: list[tuple[Part, Durations]]
    epoch: int
    at: Array

    @property
    def maps(self) -> Maps:
        """From recorded to replayed times of the host, by burst."""
        return {part.burst: _Map(part, durations, self.epoch, self.at) for part, durations in self.parts}

    def pieces(self, start: Array, end: Array, arrived: Array) -> tuple[Array, Array, Array]:
        """Begin and end of the rank's kernels, and when peers were there (-1: not known), in the replay."""
        start, end, arrived = start.copy(), end.copy(), arrived.copy()
        for part, durations in self.parts:
            ends = self.at[part.ends]
            begun = np.where(part.pieces.met, self.at[part.starts], ends - durations.piece)
            some = part.pieces.end > part.pieces.start
            # The ledger knows no work without a duration.
            ends = np.where(some, np.maximum(ends, begun + 1), ends)
            start[part.rows], end[part.rows] = (
                self.epoch + np.rint(t).astype(np.int64) for t in (begun, ends)
            )
            moving = np.rint(ends - durations.piece).astype(np.int64)
            arrived[part.rows] = np.where(part.pieces.met, self.epoch + moving, -1)
        return start, end, arrived


def replayed(timeline: Timeline, times: Times) -> Timeline:
    """The timeline at the times of the replay."""
    maps = times.maps
    ops, calls, waits = (
        _moved(table, ("start_ns", "end_ns"), maps)
        for table in (timeline.ops, timeline.calls, timeline.waits)
    )
    stacks = _moved(timeline.stacks, ("time_ns",), maps)
    steps = _apart(_moved(timeline.steps.with_columns(thread=None), ("mark_ns", "end_ns"), maps))
    steps = steps.with_columns(timeline.steps["thread"])
    kernels = _kernels(timeline.kernels, times, maps)
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


Maps = dict[int, _Map]


def _moved(rows: pl.DataFrame, columns: tuple[str, ...], maps: Maps) -> pl.DataFrame:
    if rows.is_empty():
        return rows
    bursts = rows["burst"].fill_null(0).to_numpy()
    threads = None if rows["thread"].dtype == pl.Null else rows["thread"].fill_null(-1).to_numpy()
    return rows.with_columns(_times(rows[name], bursts, threads, maps) for name in columns)


def _apart(steps: pl.DataFrame) -> pl.DataFrame:
    known = steps["end_ns"].is_not_null()
    marks, ends = apart(
        steps["mark_ns"].to_numpy(), steps["end_ns"].fill_null(0).to_numpy(), known.to_numpy()
    )
    return steps.with_columns(pl.Series("mark_ns", marks), pl.Series("end_ns", ends).set(~known, None))


def apart(marks: Array, ends: Array, known: Array) -> tuple[Array, Array]:
    """Steps that take no time any more keep their order: each mark is a nanosecond after the one before."""
    if not (ends[known] <= marks[known]).any():
        return marks, ends
    order = np.empty(len(marks), np.int64)
    order[np.argsort(marks, kind="stable")] = np.arange(1, len(marks) + 1)
    return marks + order, ends + order + 1


def _times(column: pl.Series, bursts: Array, threads: Array | None, maps: Maps) -> pl.Series:
    known = column.is_not_null().to_numpy()
    times = moved(column.fill_null(0).to_numpy(), known, bursts, threads, maps)
    return pl.Series(column.name, times).set(pl.Series(~known), None)


def moved(times: Array, known: Array, bursts: Array, threads: Array | None, maps: Maps) -> Array:
    """The times of host records that are `known`, in the replay; `threads` made them (None: the team)."""
    found = times.copy()
    for burst, to in maps.items():
        rows = known & (bursts == burst)
        found[rows] = to(times[rows], None if threads is None else threads[rows])
    return found


def _kernels(rows: pl.DataFrame, times: Times, maps: Maps) -> pl.DataFrame:
    met = "arrived_ns" in rows.columns
    peers = rows["arrived_ns"].fill_null(-1).to_numpy() if met else np.full(rows.height, -1)
    start, end, arrived = times.pieces(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), peers)
    columns = [pl.Series("start_ns", start), pl.Series("end_ns", end)]
    if met:
        columns.append(pl.Series("arrived_ns", arrived).set(pl.Series(arrived < 0), None))
    bursts, threads = rows["burst"].to_numpy(), rows["launcher"].fill_null(-1).to_numpy()
    columns.append(_times(rows["launched"], bursts, threads, maps))
    return rows.with_columns(columns)
