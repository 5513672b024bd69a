"""The graph of all recorded ranks, and its replay with changed durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from fathom.analysis.intervals import Array
from fathom.analysis.peers import meetings
from fathom.analysis.recording import Timeline, read_timeline
from fathom.analysis.replay.build import graph_of, parts_of
from fathom.analysis.replay.changes import Change
from fathom.analysis.replay.graph import Graph
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.replayed import Times, replayed
from fathom.analysis.replay.weights import Durations, PartEdges, weights
from fathom.sounding import Store


class Model(msgspec.Struct, dict=True):
    """The parts of all ranks and their graph; `timelines` are by rank."""

    timelines: dict[int, Timeline]
    parts: list[Part]
    graph: Graph
    _owner: Array

    @classmethod
    def of(cls, store: Store, read: Mapping[int, Timeline] | None = None) -> Model:
        """Return the model of a sounding; `read` holds timelines that were already read, by rank."""
        timelines = dict(read or {})
        if missing := [rank for rank in store.ranks if rank not in timelines]:
            met = meetings(store)
            timelines |= {rank: read_timeline(store, rank, met=met.of.get(rank)) for rank in missing}
        timelines = {rank: timelines[rank] for rank in store.ranks}
        parts: list[Part] = []
        for timeline in timelines.values():
            parts += parts_of(timeline, sum(part.count for part in parts))
        graph, owner = graph_of(parts)
        return cls(timelines, parts, graph, owner)

    def times(
        self, changes: Sequence[Change] = (), *, host: float = 1.0, long: float = 1.0, typical: bool = False
    ) -> Replayed:
        """Replay the step with `changes` applied.

        `typical` uses constants for all slack. `host` and `long` are the factors passed to `Durations.of`.
        """
        durations = [Durations.of(part, changes, host, long) for part in self.parts]
        edge_weights = np.zeros(len(self._owner))
        for part, mine, own in zip(self.parts, durations, self._edges, strict=True):
            edge_weights[own.rows] = weights(own, part, mine, typical)
        return Replayed(self, durations, self.graph.times(edge_weights))

    @cached_property
    def _edges(self) -> list[PartEdges]:
        """The graph's edges of each part."""
        rows = [np.flatnonzero(self._owner == i) for i in range(len(self.parts))]
        return [
            PartEdges.of(part, mine, self.graph.edges) for part, mine in zip(self.parts, rows, strict=True)
        ]


class Replayed(msgspec.Struct):
    """A replay: the new time of every instant, `at`."""

    model: Model
    durations: list[Durations]
    at: Array  # by instant

    def of(self, rank: int) -> Times:
        """Return the new times of a rank."""
        mine = [(p, d) for p, d in zip(self.model.parts, self.durations, strict=True) if p.rank == rank]
        return Times(mine, self.model.graph.epoch, self.at)

    def timeline(self, rank: int) -> Timeline:
        """Return the timeline of a rank with its new times."""
        return replayed(self.model.timelines[rank], self.of(rank))
