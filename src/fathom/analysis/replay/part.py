"""One burst of one rank: its host, its device work, and the instants of both in the graph."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from fathom.analysis.intervals import Array
from fathom.analysis.replay.changes import Change
from fathom.analysis.replay.graph import Edges, Kind
from fathom.analysis.replay.host import Calls, Team
from fathom.analysis.replay.pieces import Pieces


class Part(msgspec.Struct, dict=True):
    """`begin` and `done` are the instants of the calls, `starts` and `ends` those of the pieces, by index.

    A piece has a start of its own only where a collective waits for peers; else it is its end's.
    """

    rank: int
    burst: int
    team: Team
    calls: Calls
    pieces: Pieces
    rows: Array  # of the rank's kernels, that the pieces are
    origin: int  # instant
    begin: Array
    done: Array
    starts: Array
    ends: Array
    edges: Edges = msgspec.field(default_factory=Edges)
    facts: dict[str, float] = msgspec.field(default_factory=dict)  # what was found out, and how often not
    # What a change acts on, found once: intervals of the team with its factor on them, and pieces.
    intervals_of: dict[Change, tuple[Array, Array | float]] = msgspec.field(default_factory=dict)
    pieces_of: dict[Change, Array] = msgspec.field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many instants it has."""
        return 1 + 2 * len(self.begin) + len(self.ends) + int(self.pieces.met.sum())

    @property
    def zero(self) -> int:
        """When the burst begins."""
        knots, starts = self.team.knots, self.pieces.start
        return int(knots[0]) if len(knots) else int(starts.min(initial=0))

    def recorded(self) -> Array:
        """When its instants were, in nanoseconds since the epoch."""
        found = np.full(self.count, self.zero)
        found[self.begin - self.origin] = self.calls.start
        found[self.done - self.origin] = self.calls.end
        found[self.starts - self.origin] = self.pieces.start
        found[self.ends - self.origin] = self.pieces.end
        return found

    def host(self) -> Array:
        """Which of them are the host's."""
        found = np.ones(self.count, bool)
        found[self.starts - self.origin] = False
        found[self.ends - self.origin] = False
        return found

    @cached_property
    def anchors(self) -> Array:
        """The team's instants in order."""
        mine = self.calls.team
        return np.append(self.origin, np.column_stack((self.begin[mine], self.done[mine])).ravel())

    @cached_property
    def anchored(self) -> Array:
        """When they were."""
        mine = self.calls.team
        flat = np.column_stack((self.calls.start[mine], self.calls.end[mine])).ravel()
        return np.append(self.zero, flat)

    @cached_property
    def knot_of_anchor(self) -> Array:
        """Which of the team's knots each anchor is."""
        return np.searchsorted(self.team.knots, self.anchored)

    @cached_property
    def working_ns(self) -> Array:
        """By interval of the team: nanoseconds in which the host works. Complete once all edges are added."""
        calls, call = self.calls, self.team.call
        if not len(calls.start):
            return self.team.lengths * np.ones(len(call))
        share = np.divide(calls.own, calls.length, out=np.ones(len(calls.own)), where=calls.length > 0)
        return self.team.lengths * np.where(call >= 0, share[np.maximum(call, 0)], 1.0)

    @cached_property
    def called_ns(self) -> Array:
        """By call: nanoseconds in which the host works. Complete once all edges are added."""
        return self.of_calls(self.working_ns)

    def of_calls(self, by_interval: Array) -> Array:
        """By call: the sum over the intervals that it holds."""
        inside = self.team.call >= 0
        return np.bincount(self.team.call[inside], by_interval[inside], len(self.calls.start))


def number(
    origin: int,
    rank: int,
    burst: int,
    team: Team,
    calls: Calls,
    pieces: Pieces,
    rows: Array,
) -> Part:
    """A part whose instants are numbered from `origin`."""
    count = len(calls.start)
    begin = origin + 1 + 2 * np.arange(count)
    ends = origin + 1 + 2 * count + np.arange(len(pieces.start))
    starts = ends.copy()
    starts[pieces.met] = origin + 1 + 2 * count + len(ends) + np.arange(int(pieces.met.sum()))
    return Part(rank, burst, team, calls, pieces, rows, origin, begin, begin + 1, starts, ends)


def host_edges(part: Part) -> None:
    """The team works from one of its calls to the next; other threads act some time after its last one."""
    anchors = part.anchors
    part.edges.add(Kind.HOST, anchors[:-1], anchors[1:], 0.0)
    calls = part.calls
    others = np.flatnonzero(~calls.team)
    last = np.searchsorted(part.anchored, calls.start[others], "right") - 1
    after = anchors[np.maximum(last, 0)]
    delay = calls.start[others] - part.anchored[np.maximum(last, 0)]
    part.edges.add(Kind.FIXED, after, part.begin[others], delay)
    part.edges.add(Kind.FIXED, part.begin[others], part.done[others], calls.own[others])
