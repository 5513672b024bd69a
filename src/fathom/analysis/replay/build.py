"""Build the dependency graph from the recorded timelines."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, instants
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.blocking import block_edges
from fathom.analysis.replay.graph import EdgeKind, Edges, EdgeTable, Graph
from fathom.analysis.replay.part import Part, host_edges, number
from fathom.analysis.replay.pieces import pieces_of
from fathom.analysis.replay.starting import start_edges
from fathom.analysis.replay.team import batch_waits, calls_of, team_of, team_threads

STREAM_WAIT = r"^(cuda|cu|hip)StreamWaitEvent"


def parts_of(timeline: Timeline, origin: int) -> list[Part]:
    """Return a part per burst, with instants numbered from `origin` and all edges within the rank."""
    bursts = instants(
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
    threads = team_threads(host)
    batches = batch_waits(ops, waits, calls, threads)
    met = calls_of(calls, kernels["correlation"].drop_nulls().unique(), batches, threads)
    marks = pl.concat([steps["mark_ns"], steps["end_ns"]]).drop_nulls().to_numpy()
    team = team_of(host, [ops, calls, waits], met, marks)
    pieces, rows = pieces_of(kernels, met.launched)
    rank = timeline.about.rank
    part = number(origin, rank, burst, team, met, pieces, _rows(timeline, burst)[rows])
    block_edges(part)
    start_edges(part, _orderings(calls))
    host_edges(part)
    return part


def _rows(timeline: Timeline, burst: int) -> Array:
    return np.flatnonzero(timeline.kernels["burst"].to_numpy() == burst)


def _orderings(calls: pl.DataFrame) -> Array:
    """Return the start and thread of every call that makes a stream wait, calls x 2."""
    rows = calls.filter(pl.col("api").str.contains(STREAM_WAIT)).drop_nulls("thread")
    return rows.select("start_ns", "thread").to_numpy()


def graph_of(parts: list[Part]) -> tuple[Graph, Array]:
    """Return the graph of all parts, and the index of the part of each of its edges."""
    met = _meet(parts)
    tables = [Edges().table(), *(part.edges.table() for part in parts)]
    every = EdgeTable(*(np.concatenate(column) for column in zip(*tables, strict=True)))
    recorded = np.concatenate([*(part.recorded() for part in parts), met])
    host = np.concatenate([*(part.host() for part in parts), np.zeros(len(met), bool)])
    graph, chosen = Graph.of(recorded, host, every)
    owner = np.repeat(np.arange(len(tables)) - 1, [len(table.kind) for table in tables])
    return graph, owner[chosen]


def _meet(parts: list[Part]) -> Array:
    """Add edges between the ranks of a collective: all have to begin before any of them moves bytes.

    Each meeting of ranks is an instant, numbered after those of the parts. Returns the recorded times of
    these instants in ns.
    """
    first = sum(part.count for part in parts)
    arrivals = [np.zeros(0, np.int64), *(part.pieces.arrived[part.pieces.met] for part in parts)]
    instants = np.unique(np.concatenate(arrivals))
    last = np.full(len(instants), np.iinfo(np.int64).min)
    for part in parts:
        place = np.searchsorted(instants, part.pieces.arrived[part.pieces.met])
        np.maximum.at(last, place, part.pieces.start[part.pieces.met])
    for part in parts:
        rows = np.flatnonzero(part.pieces.met)
        place = np.searchsorted(instants, part.pieces.arrived[rows])
        begun = part.pieces.start[rows]
        # If the last rank to arrive was not recorded, the wait for it stays the same.
        part.edges.add(
            EdgeKind.PEER,
            part.starts[rows],
            first + place,
            np.where(begun == last[place], instants[place] - begun, 0.0),
        )
        part.edges.add(EdgeKind.PEER, first + place, part.ends[rows], 0.0, None, rows)
    return instants
