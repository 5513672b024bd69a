"""A replay as tables: the recorded rows with their new times, the input of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.intervals import Array
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.weights import Durations


class Times(msgspec.Struct, frozen=True):
    """A replay of one rank: `at` is the time of each instant, in ns since `epoch`."""

    parts: list[tuple[Part, Durations]]
    epoch: int
    at: Array

    @property
    def maps(self) -> Maps:
        """Mappings from recorded to replayed times of the host, by burst."""
        return {part.burst: _Map(part, durations, self.epoch, self.at) for part, durations in self.parts}

    def pieces(self, start: Array, end: Array, arrived: Array) -> tuple[Array, Array, Array]:
        """Return start, end and arrival of peers (-1 if unknown) of the rank's replayed kernels, in ns."""
        start, end, arrived = start.copy(), end.copy(), arrived.copy()
        if not len(start):  # the processor's part has collectives of host threads instead
            return start, end, arrived
        for part, durations in self.parts:
            ends = self.at[part.ends]
            begun = np.where(part.pieces.met, self.at[part.starts], ends - durations.piece)
            took_time = part.pieces.end > part.pieces.start
            # The ledger ignores work without a duration.
            ends = np.where(took_time, np.maximum(ends, begun + 1), ends)
            start[part.rows], end[part.rows] = (
                self.epoch + np.rint(t).astype(np.int64) for t in (begun, ends)
            )
            moving = np.rint(ends - durations.piece).astype(np.int64)
            arrived[part.rows] = np.where(part.pieces.met, self.epoch + moving, -1)
        return start, end, arrived


def replayed(timeline: Timeline, times: Times) -> Timeline:
    """Return the timeline with the times of the replay."""
    maps = times.maps
    ops, calls, waits = (
        _moved(table, ("start_ns", "end_ns"), maps)
        for table in (timeline.ops, timeline.calls, timeline.waits)
    )
    stacks = _moved(timeline.stacks, ("time_ns",), maps)
    steps = _separated(_moved(timeline.steps.with_columns(thread=None), ("mark_ns", "end_ns"), maps))
    steps = steps.with_columns(timeline.steps["thread"])
    kernels, meetings = timeline.kernels, timeline.meetings
    if meetings is None:
        kernels = _kernels(kernels, times, maps)
    else:
        meetings = meetings.with_columns(_worked(meetings, times))
    tables = steps, ops, calls, kernels, waits, timeline.every, stacks, meetings
    return Timeline(timeline.about, *tables, clean_stacks=timeline.clean_stacks)


class Placed(msgspec.Struct, frozen=True):
    """Positions of one burst's host records between anchors and knots, the same for every replay."""

    since: Array  # the last anchor before each record
    after: Array  # ns since that anchor
    calling: Array  # rows of the team's records inside its calls
    working: Array  # rows of the team's records between its calls
    knot: Array  # of `working`: the last knot before each
    beyond: Array  # of `working`: ns since that knot
    upcoming: Array  # of `working`: the next knot, or the last one after the end
    gap: Array  # of `working`: ns from the last knot to the next

    @classmethod
    def of(cls, part: Part, times: Array, threads: Array | None) -> Placed:
        """Return positions from recorded times; `threads` made the records (None for the team)."""
        last = np.searchsorted(part.anchored, times, "right") - 1
        since = np.maximum(last, 0)
        own = np.ones(len(times), bool) if threads is None else np.isin(threads, list(part.team.threads))
        own &= last >= 0
        working, knots = np.flatnonzero(own & (last % 2 == 0)), part.team.knots
        knot = np.maximum(np.searchsorted(knots, times[working], "right") - 1, 0)
        upcoming = np.minimum(knot + 1, max(len(knots) - 1, 0))
        beyond, gap = np.zeros(len(working)), np.ones(len(working))
        if len(knots):
            beyond = (times[working] - knots[knot]).astype(float)
            gap = np.maximum(knots[upcoming] - knots[knot], 1).astype(float)
        after = (times - part.anchored[since]).astype(float)
        calling = np.flatnonzero(own & (last % 2 == 1))
        return cls(since, after, calling, working, knot, beyond, upcoming, gap)


class HostTimes(msgspec.Struct, frozen=True):
    """Times of host records, and the rows and positions of those that a replay moves, by burst."""

    times: Array
    placed: dict[int, tuple[Array, Placed]]

    @classmethod
    def of(
        cls, times: Array, known: Array, bursts: Array, threads: Array | None, parts: Iterable[Part]
    ) -> HostTimes:
        """Return times of records; those in mask `known` move. `threads` made them (None for the team)."""
        placed = {}
        for part in parts:
            rows = np.flatnonzero(known & (bursts == part.burst))
            by = None if threads is None else threads[rows]
            placed[part.burst] = rows, Placed.of(part, times[rows], by)
        return cls(times, placed)

    def moved(self, maps: Maps) -> Array:
        """Return the times in the replay, in ns."""
        times = self.times.copy()
        for burst, (rows, placed) in self.placed.items():
            times[rows] = maps[burst](placed)
        return times


class _Map:
    """Mapping from recorded to replayed times of one burst's host."""

    def __init__(self, part: Part, durations: Durations, epoch: int, at: Array) -> None:
        self.part = part
        self._epoch, self._elapsed, self._at = epoch, durations.elapsed, at[part.anchors]

    def __call__(self, placed: Placed) -> Array:
        """Return the new times in ns.

        Times of the team scale with its work; times of other threads keep their distance from its last call.
        """
        since, moved = placed.since, placed.after.copy()
        moved[placed.calling] *= self._longer[since[placed.calling]]
        moved[placed.working] = self._worked(placed)
        return self._epoch + np.rint(moved + self._at[since]).astype(np.int64)

    @cached_property
    def _longer(self) -> Array:
        """Factor on the time from each anchor to the next one, which applies inside calls."""
        was, now = np.diff(self.part.anchored), np.diff(self._at)
        return np.append(np.divide(now, was, out=np.ones(len(now)), where=was > 0), 1.0)

    def _worked(self, placed: Placed) -> Array:
        """Return the host's work since its last call, in ns."""
        elapsed = self._elapsed
        pace = (elapsed[placed.upcoming] - elapsed[placed.knot]) / placed.gap
        work = pace * placed.beyond + elapsed[placed.knot]
        return work - elapsed[self.part.knot_of_anchor[placed.since[placed.working]]]


Maps = dict[int, _Map]


def _moved(rows: pl.DataFrame, columns: tuple[str, ...], maps: Maps) -> pl.DataFrame:
    if rows.is_empty():
        return rows
    bursts = filled(rows["burst"], 0).to_numpy()
    threads = None if rows["thread"].dtype == pl.Null else filled(rows["thread"], -1).to_numpy()
    return rows.with_columns(_times(rows[name], bursts, threads, maps) for name in columns)


def _separated(steps: pl.DataFrame) -> pl.DataFrame:
    known = steps["end_ns"].is_not_null()
    marks, ends = separated(
        steps["mark_ns"].to_numpy(), filled(steps["end_ns"], 0).to_numpy(), known.to_numpy()
    )
    return steps.with_columns(pl.Series("mark_ns", marks), pl.Series("end_ns", ends).set(~known, None))


def separated(marks: Array, ends: Array, known: Array) -> tuple[Array, Array]:
    """Return marks and ends with 1 ns added per step, so that steps of zero length keep their order."""
    if not (ends[known] <= marks[known]).any():
        return marks, ends
    order = np.empty(len(marks), np.int64)
    order[np.argsort(marks, kind="stable")] = np.arange(1, len(marks) + 1)
    return marks + order, ends + order + 1


def _times(column: pl.Series, bursts: Array, threads: Array | None, maps: Maps) -> pl.Series:
    known, parts = column.is_not_null(), [to.part for to in maps.values()]
    times = HostTimes.of(column.fill_null(0).to_numpy(), known.to_numpy(), bursts, threads, parts)
    return pl.Series(column.name, times.moved(maps)).set(~known, None)


def _worked(rows: pl.DataFrame, times: Times) -> list[pl.Series]:
    """Return the columns of device work that a replay changes, except launches."""
    met = "arrived_ns" in rows.columns
    peers = filled(rows["arrived_ns"], -1).to_numpy() if met else np.full(rows.height, -1)
    start, end, arrived = times.pieces(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), peers)
    columns = [pl.Series("start_ns", start), pl.Series("end_ns", end)]
    if met:
        columns.append(pl.Series("arrived_ns", arrived).set(pl.Series(arrived < 0), None))
    return columns


def _kernels(rows: pl.DataFrame, times: Times, maps: Maps) -> pl.DataFrame:
    columns = _worked(rows, times)
    bursts, threads = rows["burst"].to_numpy(), filled(rows["launcher"], -1).to_numpy()
    columns.append(_times(rows["launched"], bursts, threads, maps))
    return rows.with_columns(columns)
