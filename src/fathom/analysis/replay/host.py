"""The host as a sequence: the threads that run a step in turns, cut where anything begins or ends."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from fathom.analysis import causes
from fathom.analysis.entries import ALIASES, Entry
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, covered, covered_between, instants, of_rows
from fathom.analysis.replay.changes import Change
from fathom.analysis.work.recompute import regions

INPUT, SYNC = Entry.INPUT.cause, Entry.SYNCHRONISATION.cause
NAMED = ["op", "annotation"]  # what a change can name: regions are the host's work as ops are
SHARE = 0.5  # of an input region: less than this in ops of its own means that it waited for workers


class Calls(msgspec.Struct):
    """Runtime calls and waits for batches that meet the device or the loader, in time order.

    `team` tells those of the threads that run the step; `waits` is where a call blocks without working: `own`
    is what is left of it then.
    """

    start: Array
    end: Array
    team: Array
    thread: Array
    api: list[str]
    own: Array
    queued: Array  # launches that found their queue full
    launched: pl.DataFrame  # correlation, call

    @property
    def length(self) -> Array:
        """Nanoseconds from begin to end."""
        return self.end - self.start


class Team(msgspec.Struct, dict=True):
    """A caller and the autograd engine's threads, which run on its behalf while it waits: one sequence.

    Intervals lie between neighbouring `knots`. `call` is the call that an interval lies in, or -1;
    `masks` tells by cause which intervals it holds.
    """

    threads: set[int]
    knots: Array
    call: Array
    masks: dict[str, Array]
    ops: pl.DataFrame

    @cached_property
    def again(self) -> Spans:
        """When a part of the forward pass is repeated; few changes ask."""
        return regions(self.ops)

    @cached_property
    def lengths(self) -> Array:
        """Nanoseconds of each interval as recorded."""
        return np.diff(self.knots)

    def named(self, change: Change) -> Array:
        """Intervals inside ops whose name matches the change's pattern."""
        names = [name for name in self.ops["name"].unique().to_list() if change.matches(name)]
        rows = self.ops.filter(pl.col("name").is_in(names))
        return self._inside(of_rows(rows))

    def recomputing(self) -> Array:
        """Intervals in which a part of the forward pass is repeated."""
        return self._inside(self.again)

    def _inside(self, held: Spans) -> Array:
        return covered_between(held, self.knots) > 0

    def label(self, activity: list[tuple[tuple[str, str], Spans]]) -> None:
        """Fill `masks` from the ledger's own idea of what the threads did."""
        for (cause, _), held in activity:
            mask = 2 * covered_between(held, self.knots) > self.lengths  # samples cut anywhere
            self.masks[cause] = self.masks.get(cause, np.zeros(len(mask), bool)) | mask


def team_of(host: HostRecords, tables: list[pl.DataFrame], calls: Calls, marks: Array) -> Team:
    """The team of one burst. `tables` are its ops, calls and waits: thread, start_ns, end_ns."""
    threads = team_threads(host)
    mine = [table.filter(pl.col("thread").is_in(list(threads))) for table in tables]
    times = [table[column].to_numpy() for table in mine for column in ("start_ns", "end_ns")]
    at_calls = [calls.start[calls.team], calls.end[calls.team]]
    knots = instants(np.concatenate([*times, *at_calls, marks]).astype(np.int64))
    ops = mine[0].filter(pl.col("kind").is_in(NAMED), ~pl.col("name").str.contains(causes.STEPS))
    team = Team(threads, knots, _calls_of(knots, calls), {}, ops)
    if len(knots) > 1:
        team.label(host.activity(host.caller))
    return team


def team_threads(host: HostRecords) -> set[int]:
    """The caller and the engine's threads."""
    return host.autograd | ({host.caller} if host.caller is not None else set())


def _calls_of(knots: Array, calls: Calls) -> Array:
    mine = np.flatnonzero(calls.team)
    if not len(mine):
        return np.full(max(len(knots) - 1, 0), -1)
    place = np.searchsorted(calls.start[mine], knots[:-1], "right") - 1
    inside = (place >= 0) & (knots[:-1] < calls.end[mine[np.maximum(place, 0)]])
    return np.where(inside, mine[np.maximum(place, 0)], -1)


def calls_of(calls: pl.DataFrame, launching: pl.Series, batches: Spans, threads: set[int]) -> Calls:
    """The calls that launched something (correlation in `launching`), that synchronise, or wait for a batch.

    On the team no two calls overlap: one that begins inside another begins when that has ended.
    """
    syncs = pl.col("api").map_elements(_synchronises, return_dtype=pl.Boolean)
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
    thread = rows["thread"].fill_null(-1).to_numpy()
    launched = rows.with_row_index("call").select("correlation", pl.col("call").cast(pl.Int64)).drop_nulls()
    launched = launched.unique("correlation", keep="first", maintain_order=True)
    api = rows["api"].fill_null("").to_list()
    return Calls(
        start, end, team, thread, api, (end - start).astype(float), np.zeros(len(api), bool), launched
    )


def _synchronises(api: str) -> bool:
    return causes.api_cause(api) == SYNC


def batch_waits(ops: pl.DataFrame, waits: pl.DataFrame, calls: pl.DataFrame, threads: set[int]) -> Spans:
    """Waits of the team for batches that other processes or threads make.

    A loader without workers makes them in the program, as does a region in which the team itself works most
    of the time: that is host work.
    """
    aliases = [INPUT, *(name for name, cause in ALIASES.items() if cause == INPUT)]
    here = pl.col("thread").is_in(list(threads))
    rows = waits.filter(here, pl.col("cause").is_in(aliases))
    in_process = ops.filter(here, pl.col("name").str.contains(causes.IN_PROCESS))
    if rows.is_empty():
        rows = ops.filter(here, pl.col("name").str.contains(causes.REGIONS[INPUT].pattern))
    found = of_rows(rows)
    own = pl.concat(
        [t.filter(here).select("start_ns", "end_ns") for t in (_framework(ops), in_process, calls)]
    )
    worked = covered(of_rows(own), *found)
    alone = worked < SHARE * (found.ends - found.starts)
    return _until_a_call(Spans(found.starts[alone], found.ends[alone]), calls.filter(here))


def _framework(ops: pl.DataFrame) -> pl.DataFrame:
    return ops.filter(pl.col("kind") == "op")


def _until_a_call(waits: Spans, calls: pl.DataFrame) -> Spans:
    """Waits up to the first call inside them: what comes after it is work on the batch."""
    starts = np.sort(calls["start_ns"].to_numpy())
    first = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, waits.starts, "left")]
    ends = np.minimum(waits.ends, first)
    whole = ends - waits.starts > SHARE * (waits.ends - waits.starts)
    return Spans(waits.starts[whole], ends[whole])
