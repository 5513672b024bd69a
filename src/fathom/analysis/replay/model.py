"""The dependency graph of all recorded ranks, and its replay with changed durations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct
from fathom.analysis.communication import MEETING, operation
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import NOTHING, Array, covered, merge, of_rows
from fathom.analysis.peers import Meetings, meetings
from fathom.analysis.recording import Timeline, read_timeline
from fathom.analysis.replay.blocking import block_edges
from fathom.analysis.replay.changes import Change
from fathom.analysis.replay.graph import EdgeKind, Edges, EdgeTable, Graph
from fathom.analysis.replay.part import Part, host_edges, number
from fathom.analysis.replay.pieces import pieces_of
from fathom.analysis.replay.replayed import Times, replayed
from fathom.analysis.replay.starting import start_edges
from fathom.analysis.replay.team import PEERS, batch_waits, calls_of, team_of, team_threads
from fathom.analysis.replay.weights import Durations, PartEdges, weights
from fathom.sounding import Store

STREAM_WAIT = r"^(cuda|cu|hip)StreamWaitEvent"
QUICKEST = 0.56  # ratio of the host's clean to its profiled time (benchmarks/results/cost.json, launch_bound)
UNDISTURBED = 0.9  # the same where only device work was recorded (benchmarks/results/timeline_cost.json)
FLOOR = QUICKEST / 2  # no host is faster
PACES = np.linspace(FLOOR, 1.0, 2**12 + 1)  # of which the pace of the clean steps is one
CALLS = r"^c10d::(.+?)_?$"  # ops that put a collective into the backend's queue
LONG_NS = 20_000  # shorter waits in which no collective ends are gaps between ops
CALLED = ["thread", "api", "start_ns", "end_ns", "correlation"]


class Model(msgspec.Struct, dict=True):
    """The parts of all ranks and their graph; `timelines` maps ranks to timelines."""

    timelines: dict[int, Timeline]
    parts: list[Part]
    graph: Graph
    owner: Array  # of each edge: the index of its part
    _last: tuple[tuple[object, ...], list[Durations]] | None = None

    @classmethod
    def of(
        cls,
        store: Store,
        read: Mapping[int, Timeline] | None = None,
        met: Meetings | None = None,
        chosen: Sequence[int] | None = None,
    ) -> Model:
        """Return the model of the ranks `chosen`, by default all.

        `read` maps ranks to timelines that were already read; `met` has the arrivals at their collectives.
        """
        timelines, ranks = dict(read or {}), store.ranks if chosen is None else chosen
        if missing := [rank for rank in ranks if rank not in timelines]:
            met = meetings(store) if met is None else met
            timelines |= {rank: read_timeline(store, rank, met=met.of.get(rank)) for rank in missing}
        shifts = met.shifts if met else {}
        timelines = {rank: timelines[rank].on_shared_clock(shifts.get(rank, {})) for rank in ranks}
        parts: list[Part] = []
        for timeline in timelines.values():
            parts += parts_of(timeline, sum(part.count for part in parts))
        graph, owner = graph_of(parts, _others(met, ranks) if met and len(ranks) < len(store.ranks) else {})
        return cls(timelines, parts, graph, owner)

    def times(
        self, changes: Sequence[Change] = (), *, host: float = 1.0, long: float = 1.0, typical: bool = False
    ) -> Replayed:
        """Replay the step with `changes` applied.

        `typical` uses constants for all slack. `host` and `long` are the factors passed to `Durations.of`.
        """
        durations = self._durations(changes, host, long)
        edge_weights = np.zeros(len(self.owner))
        for part, mine, own in zip(self.parts, durations, self._edges, strict=True):
            edge_weights[own.rows] = weights(own, part, mine, typical)
        return Replayed(self, durations, self.graph.times(edge_weights), edge_weights)

    def _durations(self, changes: Sequence[Change], host: float, long: float) -> list[Durations]:
        """The new durations of each part; the last ones are kept, because replays with and without recorded
        slack follow each other.
        """
        key = (*changes, host, long)
        if self._last is None or self._last[0] != key:
            self._last = key, [Durations.of(part, changes, host, long) for part in self.parts]
        return self._last[1]

    @cached_property
    def _edges(self) -> list[PartEdges]:
        """The graph's edges of each part."""
        rows = [np.flatnonzero(self.owner == i) for i in range(len(self.parts))]
        return [
            PartEdges.of(part, mine, self.graph.edges) for part, mine in zip(self.parts, rows, strict=True)
        ]


class Replayed(msgspec.Struct):
    """A replay: the new time of every instant, `at`."""

    model: Model
    durations: list[Durations]
    at: Array  # by instant
    weights: Array  # of the edges, in ns

    def of(self, rank: int) -> Times:
        """Return the new times of a rank."""
        mine = [(p, d) for p, d in zip(self.model.parts, self.durations, strict=True) if p.rank == rank]
        return Times(mine, self.model.graph.epoch, self.at)

    def timeline(self, rank: int) -> Timeline:
        """Return the timeline of a rank with its new times."""
        return replayed(self.model.timelines[rank], self.of(rank))


def parts_of(timeline: Timeline, origin: int) -> list[Part]:
    """Return a part per burst, with instants numbered from `origin` and all edges within the rank."""
    bursts = distinct(
        np.concatenate([t["burst"].to_numpy() for t in (timeline.steps, timeline.kernels, timeline.calls)])
    )
    hosts = timeline.host(bursts)
    parts = []
    for burst in bursts.tolist():
        parts.append(_part(timeline, hosts[burst], burst, origin))
        origin += parts[-1].count
    return parts


def _part(timeline: Timeline, host: HostRecords, burst: int, origin: int) -> Part:
    ops, calls, kernels, waits, steps = (
        table.filter(pl.col("burst") == burst)
        for table in (timeline.ops, timeline.calls, timeline.kernels, timeline.waits, timeline.steps)
    )
    if timeline.meetings is not None:
        kernels = queued(timeline.meetings.filter(burst=burst), ops, host)
        calls = pl.concat([calls.select(CALLED), calls_and_waits(kernels, ops, host)])
    threads = team_threads(host)
    batches = batch_waits(ops, waits, calls, threads)
    met = calls_of(calls, kernels["correlation"].drop_nulls().unique(), batches, threads)
    marks = pl.concat([steps["mark_ns"], steps["end_ns"]]).drop_nulls().to_numpy()
    team = team_of(host, [ops, calls, waits], met, marks)
    pieces, rows = pieces_of(kernels, met.launched)
    rank = timeline.about.rank
    part = number(origin, rank, burst, team, met, pieces, _rows(timeline, burst)[rows])
    block_edges(part, waits)
    start_edges(part, _orderings(calls))
    host_edges(part)
    return part


def _rows(timeline: Timeline, burst: int) -> Array:
    work = timeline.kernels if timeline.meetings is None else timeline.meetings
    return np.flatnonzero(work["burst"].to_numpy() == burst)


def _orderings(calls: pl.DataFrame) -> Array:
    """Return the start and thread of every call that makes a stream wait, calls x 2."""
    rows = calls.filter(pl.col("api").str.contains(STREAM_WAIT)).drop_nulls("thread")
    return rows.select("start_ns", "thread").to_numpy()


def _others(met: Meetings, ranks: Sequence[int]) -> dict[int, int]:
    """Map the last arrival at each collective to the last arrival of a rank that is not among `ranks`."""
    if met.arrivals is None:
        return {}
    mine, start = pl.col("rank").is_in(list(ranks)), pl.col("start_ns")
    last = met.arrivals.group_by(MEETING).agg(arrived=start.max(), other=start.filter(~mine).max())
    return dict(last.select("arrived", "other").drop_nulls().iter_rows())


def graph_of(parts: list[Part], others: Mapping[int, int] | None = None) -> tuple[Graph, Array]:
    """Return the graph of all parts, and the index of the part of each of its edges.

    If ranks are left out, `others` maps the last arrival at a collective to the last one of these ranks.
    """
    met = _meet(parts, others or {})
    tables = [Edges().table(), *(part.edges.table() for part in parts)]
    every = EdgeTable(*(np.concatenate(column) for column in zip(*tables, strict=True)))
    recorded = np.concatenate([*(part.recorded() for part in parts), met])
    host = np.concatenate([*(part.host() for part in parts), np.zeros(len(met), bool)])
    graph, chosen = Graph.of(recorded, host, every)
    owner = np.repeat(np.arange(len(tables)) - 1, [len(table.kind) for table in tables])
    return graph, owner[chosen]


def _meet(parts: list[Part], others: Mapping[int, int]) -> Array:
    """Add edges between the ranks of a collective: all have to begin before any of them moves bytes.

    Each meeting of ranks is an instant, numbered after those of the parts. Ranks that are left out arrive as
    long after the others as they did. Returns the recorded times of these instants in ns.
    """
    first = sum(part.count for part in parts)
    arrivals = [np.zeros(0, np.int64), *(part.pieces.arrived[part.pieces.met] for part in parts)]
    instants = distinct(np.concatenate(arrivals))
    last = np.full(len(instants), np.iinfo(np.int64).min)
    for part in parts:
        place = np.searchsorted(instants, part.pieces.arrived[part.pieces.met])
        np.maximum.at(last, place, part.pieces.start[part.pieces.met])
    for part in parts:
        rows = np.flatnonzero(part.pieces.met)
        place = np.searchsorted(instants, part.pieces.arrived[rows])
        begun = part.pieces.start[rows]
        # If the last rank to arrive was not recorded, the wait for it stays the same.
        unrecorded = np.where(begun == last[place], instants[place] - begun, 0.0)
        later = np.array([others.get(instant, 0) for instant in instants[place].tolist()], float) - begun
        wait = np.maximum(later, 0.0) if others else unrecorded
        part.edges.add(EdgeKind.PEER, part.starts[rows], first + place, wait)
        part.edges.add(EdgeKind.MEETING, first + place, part.ends[rows], 0.0, None, rows)
        part.edges.add(EdgeKind.ALONE, part.starts[rows], part.ends[rows], 0.0, None, rows)
    return instants


def queued(meetings: pl.DataFrame, ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the collectives of one burst as pieces of device work, with the call of each.

    A backend's threads take collectives from their queue in order, so the k-th call of an operation is that
    of its k-th collective.
    """
    calls = _calls(ops, host)
    place = pl.int_range(pl.len()).over("operation")
    named = calls.with_columns(place=place).select("operation", "place", "correlation", launched="start_ns")
    rows = meetings.sort("start_ns", maintain_order=True).with_columns(place=place)
    rows = rows.join(named, on=["operation", "place"], how="left", maintain_order="left")
    early = pl.col("launched") > pl.col("start_ns")  # queued before the burst
    return rows.with_columns(
        pl.when(~early).then("launched"),
        pl.when(~early).then("correlation"),
        device=pl.lit(None, pl.Int64),
        kind=pl.lit("collective"),
        family="name",
        direction=pl.lit(None, pl.String),
    )


def calls_and_waits(pieces: pl.DataFrame, ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the calls behind `pieces`, and the program's waits during them, with the columns of launches."""
    waiting = merge(NOTHING, *(spans for (cause, _), spans in host.activity(host.caller) if cause == PEERS))
    ends = np.sort(pieces["end_ns"].to_numpy())
    ended = np.searchsorted(ends, waiting.ends, "right") > np.searchsorted(ends, waiting.starts, "right")
    during = ended | ((covered(of_rows(pieces), *waiting) > 0) & (waiting.ends - waiting.starts > LONG_NS))
    waits = pl.DataFrame({"start_ns": waiting.starts[during], "end_ns": waiting.ends[during]}).select(
        pl.lit(host.caller, pl.Int64).alias("thread"),
        pl.lit(PEERS).alias("api"),
        pl.col("start_ns", "end_ns").cast(pl.Int64),
        pl.lit(None, pl.Int64).alias("correlation"),
    )
    return pl.concat([_calls(ops, host).select(CALLED), waits.select(CALLED)])


def _calls(ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the calls of collectives, numbered in order of their starts."""
    mine = pl.col("thread").is_in(list(team_threads(host)))
    calls = ops.filter(mine, pl.col("name").str.contains(CALLS)).sort("start_ns", maintain_order=True)
    names = {name: operation(name[len("c10d::") :].rstrip("_")) for name in calls["name"].unique().to_list()}
    named = pl.col("name").replace_strict(names, default=None, return_dtype=pl.String)
    return calls.with_columns(operation=named, api="name", correlation=pl.int_range(pl.len(), dtype=pl.Int64))


def pace_for(goal: float, length: Callable[[float], float], recorded: float) -> float:
    """Return the least of PACES above FLOOR at which a step takes `goal` ms or longer; 1 if there is none.

    `length` replays a step at a pace; it rises with the pace, up to `recorded` at 1. It is nearly linear, so
    interpolation finds the pace in a few replays.
    """
    low, high = int(np.searchsorted(PACES, QUICKEST)) - 1, len(PACES) - 1
    below, above = length(float(PACES[low])), recorded
    if below >= goal:
        low, high, below, above = 0, low, length(FLOOR), below
    halve = False
    while high - low > 1:
        before = high - low
        share = 0.5 if halve else (goal - below) / max(above - below, 1e-9)
        middle = min(max(low + math.ceil(share * before), low + 1), high - 1)
        reached = length(float(PACES[middle]))
        low, below = (middle, reached) if reached < goal else (low, below)
        high, above = (high, above) if reached < goal else (middle, reached)
        halve = not halve and 2 * (high - low) > before
    return float(PACES[high])
