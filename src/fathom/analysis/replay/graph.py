"""The dependency graph: instants, and edges with the least time between two instants."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np

from fathom.analysis.intervals import Array

NEVER = -np.inf


class EdgeKind(IntEnum):
    """The reason why one instant follows another, which decides how changes affect the time between them."""

    HOST = 0  # the host works in between
    LAUNCH = 1  # from the begin of a call to the end of its device work
    STREAM = 2  # from the end of device work to the end of the next of its stream
    EVENT = 3  # the same across streams
    SYNC = 4  # from the end of device work to the return of the call that waits for it
    QUEUE = 5  # from the end of device work to the return of the launch that waits for its slot
    LOADER = 6  # from one ready batch to the next
    PEER = 7  # from one rank's arrival at a collective to the last rank's
    FIXED = 8  # constant
    MEETING = 9  # from the last rank's arrival at a collective to its end
    ALONE = 10  # from one rank's arrival to the end of the collective, without waiting for peers


class EdgeTable(NamedTuple):
    """Parallel arrays with one element per edge. Times are in ns.

    `kept` reproduces the recording, `typical` uses constants of the machine; both exclude the duration of
    `piece`, the device work that ends at the edge's target (-1 for none). `other` is the call of a launch,
    the previous piece of a stream, or the number of batches that an edge of a loader spans.
    """

    kind: Array
    source: Array
    target: Array
    kept: Array
    typical: Array
    piece: Array
    other: Array


class Edges(msgspec.Struct):
    """A growing collection of edges."""

    rows: list[EdgeTable] = msgspec.field(default_factory=list)

    def add(
        self,
        kind: EdgeKind,
        source: Array | int,
        target: Array | int,
        kept: Array | float,
        typical: Array | float | None = None,
        piece: Array | int = -1,
        other: Array | int = -1,
    ) -> None:
        """Add edges of one kind; scalars apply to all of them. `typical` defaults to `kept`."""
        columns = (kind, source, target, kept, kept if typical is None else typical, piece, other)
        self.rows.append(EdgeTable(*np.broadcast_arrays(*(np.atleast_1d(c) for c in columns))))

    def table(self) -> EdgeTable:
        """Return all edges in one table."""
        empty = EdgeTable(*(np.zeros(0, np.int64) for _ in EdgeTable._fields))
        return EdgeTable(*(np.concatenate(c) for c in zip(empty, *self.rows, strict=True)))


class Graph(msgspec.Struct):
    """Instants with their recorded times, and edges sorted so that one pass computes all times."""

    epoch: int  # ns; times are relative to it, because floats cannot represent ns since 1970
    recorded: Array
    edges: EdgeTable
    against: int  # number of edges left out because they point back in time
    _begin: list[float]  # roots at their recorded times, all others at NEVER
    _source: list[int]
    _target: list[int]

    @classmethod
    def of(cls, recorded: Array, host: Array, edges: EdgeTable) -> tuple[Graph, Array]:
        """Return the graph, and the rows of `edges` that it contains.

        `host` is a mask of the host's instants, which come after the device's at equal times.
        """
        place = np.empty(len(recorded), np.int64)
        place[np.lexsort((np.arange(len(recorded)), host, recorded))] = np.arange(len(recorded))
        forward = place[edges.source] < place[edges.target]
        kept = np.flatnonzero(forward)
        kept = kept[np.argsort(place[edges.target[kept]], kind="stable")]
        edges = EdgeTable(*(column[kept] for column in edges))
        roots = np.flatnonzero(np.bincount(edges.target.astype(np.int64), minlength=len(recorded)) == 0)
        source, target = (edges.source.astype(np.int64).tolist(), edges.target.astype(np.int64).tolist())
        epoch = int(recorded.min(initial=np.iinfo(np.int64).max)) if len(recorded) else 0
        since = (recorded - epoch).astype(float)
        begin = np.full(len(recorded), NEVER)
        begin[roots] = since[roots]
        return cls(epoch, since, edges, int((~forward).sum()), begin.tolist(), source, target), kept

    def times(self, weights: Array) -> Array:
        """Return the earliest time of each instant for edge weights in ns; roots keep their times."""
        times = self._begin.copy()
        for source, target, weight in zip(self._source, self._target, weights.tolist(), strict=True):
            reached = times[source] + weight
            if reached > times[target]:
                times[target] = reached
        return np.fromiter(times, float, len(times))
