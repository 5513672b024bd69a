"""One burst of one rank: its host, its device work, and their instants in the graph."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fathom.analysis.intervals import Array
from fathom.analysis.replay.changes import Change
from fathom.analysis.replay.graph import EdgeKind, Edges
from fathom.analysis.replay.pieces import Pieces
from fathom.analysis.replay.team import Calls, Team

if TYPE_CHECKING:
    from fathom.analysis.replay.buckets import Buckets


class Part(msgspec.Struct, dict=True):
    """One burst of one rank; `begin` and `done` are instants of calls, `starts` and `ends` those of pieces.

    Only a collective that waits for known peers has separate instants for start and end.
    """

    rank: int
    burst: int
    team: Team
    calls: Calls
    pieces: Pieces
    rows: Array  # rows of the pieces in the rank's kernels
    origin: int  # the first instant
    begin: Array
    done: Array
    starts: Array
    ends: Array
    edges: Edges = msgspec.field(default_factory=Edges)
    facts: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # counts of what could and could not be determined
    fed_ns: float = 0.0  # that loaders need for the burst's batches at the pace of their workers
    buckets: Buckets | None = None  # of gradients, if a change needs them
    # Cached by change: the intervals of the team that it affects, with its factor; and the pieces.
    intervals_of: dict[Change, tuple[Array, Array | float]] = msgspec.field(default_factory=dict)
    pieces_of: dict[Change, Array] = msgspec.field(default_factory=dict)
    # Also cached, by changes and paces: the host's time up to each knot, and the factors on its calls.
    hosts: dict[object, tuple[Array, Array]] = msgspec.field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of instants."""
        return 1 + 2 * len(self.begin) + len(self.ends) + int(self.pieces.met.sum())

    @property
    def zero(self) -> int:
        """Start of the burst in ns."""
        knots, starts = self.team.knots, self.pieces.start
        return int(knots[0]) if len(knots) else int(starts.min(initial=0))

    def recorded(self) -> Array:
        """Return the recorded times of the part's instants, in ns since the epoch."""
        times = np.full(self.count, self.zero)
        times[self.begin - self.origin] = self.calls.start
        times[self.done - self.origin] = self.calls.end
        times[self.starts - self.origin] = self.pieces.start
        times[self.ends - self.origin] = self.pieces.end
        return times

    def host(self) -> Array:
        """Return a mask of the host's instants."""
        mask = np.ones(self.count, bool)
        mask[self.starts - self.origin] = False
        mask[self.ends - self.origin] = False
        return mask

    @cached_property
    def anchors(self) -> Array:
        """Instants of the team's calls, sorted by time, after the start of the burst."""
        mine = self.calls.team
        return np.append(self.origin, np.column_stack((self.begin[mine], self.done[mine])).ravel())

    @cached_property
    def anchored(self) -> Array:
        """Recorded times of `anchors`, in ns."""
        mine = self.calls.team
        flat = np.column_stack((self.calls.start[mine], self.calls.end[mine])).ravel()
        return np.append(self.zero, flat)

    @cached_property
    def knot_of_anchor(self) -> Array:
        """Index of each anchor in the team's knots."""
        return np.searchsorted(self.team.knots, self.anchored)

    @cached_property
    def working_ns(self) -> Array:
        """Host work in each interval of the team, in ns; valid once all edges are added."""
        calls, call = self.calls, self.team.call
        if not len(calls.start):
            return self.team.lengths * np.ones(len(call))
        share = np.divide(calls.own, calls.length, out=np.ones(len(calls.own)), where=calls.length > 0)
        return self.team.lengths * np.where(call >= 0, share[np.maximum(call, 0)], 1.0)

    @cached_property
    def called_ns(self) -> Array:
        """Host work in each call, in ns; valid once all edges are added."""
        return self.of_calls(self.working_ns)

    def of_calls(self, by_interval: Array) -> Array:
        """Return the sums over the intervals inside each call."""
        inside, call = self._in_calls
        return np.bincount(call, by_interval[inside], len(self.calls.start))

    @cached_property
    def _in_calls(self) -> tuple[Array, Array]:
        """The intervals inside calls, and the index of the call of each."""
        inside = np.flatnonzero(self.team.call >= 0)
        return inside, self.team.call[inside]


def number(
    origin: int,
    rank: int,
    burst: int,
    team: Team,
    calls: Calls,
    pieces: Pieces,
    rows: Array,
) -> Part:
    """Return a part with instants numbered from `origin`."""
    count = len(calls.start)
    begin = origin + 1 + 2 * np.arange(count)
    ends = origin + 1 + 2 * count + np.arange(len(pieces.start))
    starts = ends.copy()
    starts[pieces.met] = origin + 1 + 2 * count + len(ends) + np.arange(int(pieces.met.sum()))
    return Part(rank, burst, team, calls, pieces, rows, origin, begin, begin + 1, starts, ends)


def host_edges(part: Part) -> None:
    """Add the host's edges: the team works between its calls; other threads' calls follow its last call."""
    anchors = part.anchors
    part.edges.add(EdgeKind.HOST, anchors[:-1], anchors[1:], 0.0)
    calls = part.calls
    others = np.flatnonzero(~calls.team)
    last = np.searchsorted(part.anchored, calls.start[others], "right") - 1
    after = anchors[np.maximum(last, 0)]
    delay = calls.start[others] - part.anchored[np.maximum(last, 0)]
    part.edges.add(EdgeKind.FIXED, after, part.begin[others], delay)
    part.edges.add(EdgeKind.FIXED, part.begin[others], part.done[others], calls.own[others])
