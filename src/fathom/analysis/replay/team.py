"""The host as a sequence: threads that take turns running a step, cut where any record starts or ends."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from fathom.analysis import causes
from fathom.analysis.columns import distinct, filled
from fathom.analysis.entries import ALIASES, Entry
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, covered, covered_between, of_rows
from fathom.analysis.replay.changes import Change
from fathom.analysis.work.recompute import regions as recomputed_regions

INPUT, SYNC = Entry.INPUT.cause, Entry.SYNCHRONISATION.cause
PEERS = Entry.HOST_WAITS_FOR_PEERS.cause  # also the `api` of a wait for collectives of host threads
NAMED = ["op", "annotation"]  # kinds of records that a change can name; ops and regions are host work
SHARE = 0.5  # share of ops in an input region: with less, it waited for workers


class Calls(msgspec.Struct):
    """Runtime calls that launch or synchronise, and waits for batches, sorted by time, in ns.

    `team` is a mask of the calls of threads that run the step. `own` is the host work in a call, without the
    time that it blocks.
    """

    start: Array
    end: Array
    team: Array
    thread: Array
    api: list[str]
    own: Array
    queued: Array  # mask of launches that found their queue full
    launched: pl.DataFrame  # correlation, call

    @property
    def length(self) -> Array:
        """Durations in ns."""
        return self.end - self.start


class Team(msgspec.Struct, dict=True):
    """The caller, and the threads of autograd's engine that run while it waits, as one sequence.

    Intervals lie between neighbouring `knots`, in ns. `call` is the index of the call around an interval, or
    -1. `masks` selects the intervals of each cause.
    """

    threads: set[int]
    knots: Array
    call: Array
    masks: dict[str, Array]
    ops: pl.DataFrame

    @cached_property
    def recomputed(self) -> Spans:
        """The times in which part of the forward pass is repeated; cached, because few changes need it."""
        return recomputed_regions(self.ops)

    @cached_property
    def lengths(self) -> Array:
        """Recorded length of each interval in ns."""
        return np.diff(self.knots)

    def named(self, change: Change) -> Array:
        """Return a mask of the intervals inside ops whose name matches the change's pattern."""
        names = [name for name in self.ops["name"].unique().to_list() if change.matches(name)]
        rows = self.ops.filter(pl.col("name").is_in(names))
        return self._inside(of_rows(rows))

    def recomputing(self) -> Array:
        """Return a mask of the intervals in which part of the forward pass is repeated."""
        return self._inside(self.recomputed)

    def _inside(self, spans: Spans) -> Array:
        return covered_between(spans, self.knots) > 0

    def label(self, activity: list[tuple[tuple[str, str], Spans]]) -> None:
        """Set `masks` from the activity of the threads, as in the ledger."""
        for (cause, _), spans in activity:
            # Sampled activity may begin and end within an interval.
            mask = 2 * covered_between(spans, self.knots) > self.lengths
            self.masks[cause] = self.masks.get(cause, np.zeros(len(mask), bool)) | mask


def team_of(host: HostRecords, tables: list[pl.DataFrame], calls: Calls, marks: Array) -> Team:
    """Return the team of one burst, whose `tables` (ops, calls, waits) have thread, start_ns and end_ns."""
    threads = team_threads(host)
    mine = [table.filter(pl.col("thread").is_in(list(threads))) for table in tables]
    times = [table[column].to_numpy() for table in mine for column in ("start_ns", "end_ns")]
    at_calls = [calls.start[calls.team], calls.end[calls.team]]
    activity = host.activity(host.caller)
    parted = [side for _, spans in activity for side in spans] if host.waits else []  # within intervals
    knots = distinct(np.concatenate([*times, *at_calls, *parted, marks]).astype(np.int64))
    ops = mine[0].filter(pl.col("kind").is_in(NAMED), ~pl.col("name").str.contains(causes.STEPS))
    team = Team(threads, knots, _calls_of(knots, calls), {}, ops)
    if len(knots) > 1:
        team.label(activity)
    return team


def team_threads(host: HostRecords) -> set[int]:
    """Return the caller and the threads of autograd's engine."""
    return host.autograd | ({host.caller} if host.caller is not None else set())


def _calls_of(knots: Array, calls: Calls) -> Array:
    mine = np.flatnonzero(calls.team)
    if not len(mine):
        return np.full(max(len(knots) - 1, 0), -1)
    place = np.searchsorted(calls.start[mine], knots[:-1], "right") - 1
    inside = (place >= 0) & (knots[:-1] < calls.end[mine[np.maximum(place, 0)]])
    return np.where(inside, mine[np.maximum(place, 0)], -1)


def calls_of(calls: pl.DataFrame, launching: pl.Series, batches: Spans, threads: set[int]) -> Calls:
    """Return calls that launched work (correlation in `launching`) or synchronise, and waits for batches.

    Calls of the team do not overlap: a call that starts inside another one is moved to its end.
    """
    syncs = pl.col("api").is_in([api for api in calls["api"].unique().drop_nulls() if _synchronises(api)])
    rows = calls.filter(pl.col("correlation").is_in(launching.implode()) | syncs)
    columns = ["thread", "api", "start_ns", "end_ns", "correlation"]
    caller = min(threads, default=-1)
    waits = pl.DataFrame({"start_ns": batches.starts, "end_ns": batches.ends}).select(
        thread=pl.lit(caller, pl.Int64),
        api=pl.lit(INPUT),
        start_ns="start_ns",
        end_ns="end_ns",
        correlation=pl.lit(None, pl.Int64),
    )
    rows = pl.concat([rows.select(columns), waits.select(columns)]).sort("start_ns", maintain_order=True)
    team = rows["thread"].is_in(list(threads)).fill_null(False).to_numpy()
    start, end = rows["start_ns"].to_numpy().copy(), rows["end_ns"].to_numpy().copy()
    flat = np.maximum.accumulate(np.column_stack((start[team], end[team])).ravel())
    start[team], end[team] = flat[::2], flat[1::2]
    thread = filled(rows["thread"], -1).to_numpy()
    launched = rows.with_row_index("call").select("correlation", pl.col("call").cast(pl.Int64)).drop_nulls()
    launched = launched.unique("correlation", keep="first", maintain_order=True)
    api = filled(rows["api"], "").to_list()
    return Calls(
        start, end, team, thread, api, (end - start).astype(float), np.zeros(len(api), bool), launched
    )


def _synchronises(api: str) -> bool:
    return api == PEERS or causes.api_cause(api) == SYNC


def batch_waits(ops: pl.DataFrame, waits: pl.DataFrame, calls: pl.DataFrame, threads: set[int]) -> Spans:
    """Return the team's waits for batches that other processes or threads make.

    A loader without workers makes batches in the program itself, as does a region in which the team mostly
    works; both count as host work.
    """
    aliases = [INPUT, *(name for name, cause in ALIASES.items() if cause == INPUT)]
    here = pl.col("thread").is_in(list(threads))
    rows = waits.filter(here, pl.col("cause").is_in(aliases))
    in_process = ops.filter(here, pl.col("name").str.contains(causes.IN_PROCESS))
    if rows.is_empty():
        rows = ops.filter(here, pl.col("name").str.contains(causes.REGIONS[INPUT].pattern))
    regions = of_rows(rows)
    tables = ops.filter(pl.col("kind") == "op"), in_process, calls
    own = pl.concat([table.filter(here).select("start_ns", "end_ns") for table in tables])
    worked = covered(of_rows(own), *regions)
    waiting = worked < SHARE * (regions.ends - regions.starts)
    return _until_a_call(Spans(regions.starts[waiting], regions.ends[waiting]), calls.filter(here))


def _until_a_call(waits: Spans, calls: pl.DataFrame) -> Spans:
    """Return the waits up to the first call inside them, after which the program works on the batch."""
    starts = np.sort(calls["start_ns"].to_numpy())
    first = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, waits.starts, "left")]
    ends = np.minimum(waits.ends, first)
    mostly = ends - waits.starts > SHARE * (waits.ends - waits.starts)
    return Spans(waits.starts[mostly], ends[mostly])
