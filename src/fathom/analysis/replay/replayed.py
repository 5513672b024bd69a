"""A replay as tables: the recorded rows at their new times, ready for the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

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


class Placed(msgspec.Struct, frozen=True):
    """Times of one burst's host records among its recorded anchors and knots: the same for every replay."""

    since: Array  # the anchor before
    after: Array  # nanoseconds since that
    calling: Array  # rows of the team's inside its calls
    working: Array  # rows of the team's between its calls
    knot: Array  # of `working`: the knot before
    beyond: Array  # of `working`: nanoseconds since that

    @classmethod
    def of(cls, part: Part, times: Array, threads: Array | None) -> Placed:
        """`threads`: who made the records; None: the team did."""
        last = np.searchsorted(part.anchored, times, "right") - 1
        since = np.maximum(last, 0)
        own = np.ones(len(times), bool) if threads is None else np.isin(threads, list(part.team.threads))
        own &= last >= 0
        working, knots = np.flatnonzero(own & (last % 2 == 0)), part.team.knots
        knot = np.maximum(np.searchsorted(knots, times[working], "right") - 1, 0)
        beyond = times[working] - knots[knot] if len(knots) else np.zeros(len(working))
        after = (times - part.anchored[since]).astype(float)
        return cls(since, after, np.flatnonzero(own & (last % 2 == 1)), working, knot, beyond.astype(float))


class HostTimes(msgspec.Struct, frozen=True):
    """Times of host records, with where those lie that a replay moves: rows and places by burst."""

    times: Array
    placed: dict[int, tuple[Array, Placed]]

    @classmethod
    def of(
        cls, times: Array, known: Array, bursts: Array, threads: Array | None, parts: Iterable[Part]
    ) -> HostTimes:
        """Those that are `known` move; `threads` made them (None: the team)."""
        placed = {}
        for part in parts:
            rows = np.flatnonzero(known & (bursts == part.burst))
            by = None if threads is None else threads[rows]
            placed[part.burst] = rows, Placed.of(part, times[rows], by)
        return cls(times, placed)

    def moved(self, maps: Maps) -> Array:
        """The times in the replay."""
        found = self.times.copy()
        for burst, (rows, placed) in self.placed.items():
            found[rows] = maps[burst](placed)
        return found


class _Map:
    """From recorded to replayed times of one burst's host."""

    def __init__(self, part: Part, durations: Durations, epoch: int, at: Array) -> None:
        self.part = part
        self._epoch, self._elapsed, self._at = epoch, durations.elapsed, at[part.anchors]

    def __call__(self, placed: Placed) -> Array:
        """The team's own records change with its work, others stay as long after its last call."""
        since, moved = placed.since, placed.after.copy()
        moved[placed.calling] *= self._longer[since[placed.calling]]
        moved[placed.working] = self._worked(placed)
        return self._epoch + np.rint(moved + self._at[since]).astype(np.int64)

    @cached_property
    def _longer(self) -> Array:
        """By anchor: how much longer the time up to the next one is, as each part of a call is then."""
        was, now = np.diff(self.part.anchored), np.diff(self._at)
        return np.append(np.divide(now, was, out=np.ones(len(now)), where=was > 0), 1.0)

    def _worked(self, placed: Placed) -> Array:
        """The host's work since its last call."""
        pace = np.append(np.diff(self._elapsed) / self.part.team.lengths, 0.0)
        work = pace[placed.knot] * placed.beyond + self._elapsed[placed.knot]
        return work - self._elapsed[self.part.knot_of_anchor[placed.since[placed.working]]]


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
    known, parts = column.is_not_null(), [to.part for to in maps.values()]
    times = HostTimes.of(column.fill_null(0).to_numpy(), known.to_numpy(), bursts, threads, parts)
    return pl.Series(column.name, times.moved(maps)).set(~known, None)


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
