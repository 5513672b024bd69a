"""What a device does at each instant: the set of kernel families that run, as a partition of time."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.intervals import Array, Spans

IDLE = 0  # the state in which nothing runs
Members = tuple[int, ...]


class States(msgspec.Struct, frozen=True):
    """Segments of time, sorted and disjoint, each in a state; `members` are the families of every state.

    What the segments leave out is idle. Several kernels of one family at once are that family.
    """

    spans: Spans
    state: Array
    members: list[Members]

    @property
    def times(self) -> Array:
        """Nanoseconds of each state; of idle, what lies between the first kernel and the last."""
        lengths = self.spans.ends - self.spans.starts
        times = np.bincount(self.state, lengths, len(self.members))
        if len(lengths):
            times[IDLE] = self.spans.ends[-1] - self.spans.starts[0] - times.sum()
        return times

    @property
    def owner(self) -> Array:
        """The state that each number stands for: itself, where states are not divided."""
        return np.arange(len(self.members))

    @property
    def level(self) -> Array:
        """The number whose value each has where samples do not tell: its own."""
        return np.arange(len(self.members))


def states_of(starts: Array, ends: Array, family: Array, known: list[Members]) -> States:
    """The states of one burst's kernels; `known`, which begins with idle, gains those that are new."""
    kept = ends > starts
    starts, ends, family = starts[kept], ends[kept], family[kept]
    points = np.unique(np.concatenate((starts, ends)))
    if not len(points):
        return States(Spans(points, points), points, known)
    count, mark = _running(points, starts, ends, family)
    busy = np.flatnonzero(count)
    _, first, which = np.unique(mark[busy], return_index=True, return_inverse=True)
    ids = [_identify(points[busy[k]], starts, ends, family, known) for k in first]
    return States(Spans(points[busy], points[busy + 1]), np.array(ids, np.int64)[which], known)


def _running(points: Array, starts: Array, ends: Array, family: Array) -> tuple[Array, Array]:
    """How many kernels run between each two points, and a number that tells apart what runs."""
    opens, closes = np.searchsorted(points, starts), np.searchsorted(points, ends)
    size = len(points)
    count = np.cumsum(np.bincount(opens, minlength=size) - np.bincount(closes, minlength=size))
    keys = np.random.default_rng(0).integers(1, 2**62, int(family.max()) + 1, dtype=np.uint64)[family]
    change = np.zeros(size, np.uint64)
    np.add.at(change, opens, keys)
    np.subtract.at(change, closes, keys)
    return count[:-1], np.cumsum(change)[:-1]


def _identify(at: int, starts: Array, ends: Array, family: Array, known: list[Members]) -> int:
    """The state in which the device is at that instant."""
    members = tuple(np.unique(family[(starts <= at) & (ends > at)]).tolist())
    if members not in known:
        known.append(members)
    return known.index(members)
