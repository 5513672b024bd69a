"""The dependency graph: instants, and how long after which others each comes at the earliest."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np

from fathom.analysis.intervals import Array

NEVER = -np.inf


class Kind(IntEnum):
    """Why one instant comes after another; decides what a change does to the time between them."""

    HOST = 0  # the host works from one to the other
    LAUNCH = 1  # a call began, its device work ends
    STREAM = 2  # device work ends, the next of its stream ends
    EVENT = 3  # likewise across streams
    SYNC = 4  # device work ends, the call that waits for it returns
    QUEUE = 5  # device work ends, the launch that waits for its place returns
    LOADER = 6  # a batch was ready, the next one is
    PEER = 7  # a rank joined a collective, all have
    FIXED = 8  # nothing changes it


class EdgeTable(NamedTuple):
    """Parallel arrays, one row an edge. Times are in nanoseconds.

    `kept` reproduces the recording, `typical` knows only constants; both without the duration of `piece`,
    the device work that the edge's end completes (-1: none). `other`: the call of a launch, or the piece
    before in a stream.
    """

    kind: Array
    source: Array
    target: Array
    kept: Array
    typical: Array
    piece: Array
    other: Array


class Edges(msgspec.Struct):
    """Collects edges."""

    rows: list[EdgeTable] = msgspec.field(default_factory=list)

    def add(
        self,
        kind: Kind,
        source: Array | int,
        target: Array | int,
        kept: Array | float,
        typical: Array | float | None = None,
        piece: Array | int = -1,
        other: Array | int = -1,
    ) -> None:
        """Edges of one kind; single values hold for all of them. `typical` is `kept` unless given."""
        columns = (kind, source, target, kept, kept if typical is None else typical, piece, other)
        self.rows.append(EdgeTable(*np.broadcast_arrays(*(np.atleast_1d(c) for c in columns))))

    def table(self) -> EdgeTable:
        """All of them."""
        empty = EdgeTable(*(np.zeros(0, np.int64) for _ in EdgeTable._fields))
        return EdgeTable(*(np.concatenate(c) for c in zip(empty, *self.rows, strict=True)))


class Graph(msgspec.Struct):
    """Instants with their recorded times, and edges sorted so that one pass computes all of them."""

    epoch: int  # nanoseconds; times count from here, because floats do not hold those since 1970
    recorded: Array
    edges: EdgeTable
    against: int  # edges that were left out because they point back in time
    _roots: Array
    _source: list[int]
    _target: list[int]

    @classmethod
    def of(cls, recorded: Array, host: Array, edges: EdgeTable) -> tuple[Graph, Array]:
        """The graph, and the rows of `edges` that its own are.

        `host` tells the host's instants, which at equal times come after the device's.
        """
        place = np.empty(len(recorded), np.int64)
        place[np.lexsort((np.arange(len(recorded)), host, recorded))] = np.arange(len(recorded))
        forward = place[edges.source] < place[edges.target]
        kept = np.flatnonzero(forward)
        kept = kept[np.argsort(place[edges.target[kept]], kind="stable")]
        edges = EdgeTable(*(column[kept] for column in edges))
        roots = np.setdiff1d(np.arange(len(recorded)), edges.target)
        source, target = (edges.source.astype(np.int64).tolist(), edges.target.astype(np.int64).tolist())
        epoch = int(recorded.min(initial=np.iinfo(np.int64).max)) if len(recorded) else 0
        since = (recorded - epoch).astype(float)
        return cls(epoch, since, edges, int((~forward).sum()), roots, source, target), kept

    def times(self, weights: Array) -> Array:
        """The earliest time of every instant, where each edge takes `weights`; instants without one stay."""
        start = np.full(len(self.recorded), NEVER)
        start[self._roots] = self.recorded[self._roots]
        found = start.tolist()
        for source, target, weight in zip(self._source, self._target, weights.tolist(), strict=True):
            reached = found[source] + weight
            if reached > found[target]:
                found[target] = reached
        return np.array(found)
