"""Sets of time: sorted, disjoint, non-empty half-open intervals of int64 nanoseconds.

The functions are vectorised, and lengths are exact integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import polars as pl

Array = np.ndarray


class Spans(NamedTuple):
    """Intervals [starts[i], ends[i]), sorted; disjoint and non-empty unless a function says otherwise."""

    starts: Array
    ends: Array

    @property
    def length(self) -> int:
        """Total nanoseconds covered, if disjoint."""
        return int((self.ends - self.starts).sum())


def spans(starts: Array | list[int], ends: Array | list[int]) -> Spans:
    """Return intervals as int64 arrays in the given order, without checks."""
    return Spans(np.asarray(starts, np.int64), np.asarray(ends, np.int64))


NOTHING = spans([], [])


def union(starts: Array, ends: Array) -> Spans:
    """Return the union of intervals, which may overlap, touch, be empty and be unsorted."""
    kept = ends > starts
    starts, ends = np.asarray(starts[kept], np.int64), np.asarray(ends[kept], np.int64)
    if not len(starts):
        return NOTHING
    if not (starts[1:] >= starts[:-1]).all():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.flatnonzero(np.concatenate(([True], starts[1:] > reach[:-1])))
    return Spans(starts[opens], reach[np.append(opens[1:] - 1, len(reach) - 1)])


def of_rows(rows: pl.DataFrame) -> Spans:
    """Return the union of the records in `rows` (start_ns, end_ns)."""
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def merge(*sets: Spans) -> Spans:
    """Return the union of several sets."""
    return union(np.concatenate([s.starts for s in sets]), np.concatenate([s.ends for s in sets]))


def complement(of: Spans, low: int, high: int) -> Spans:
    """Return the part of [low, high) outside the set `of`."""
    starts = np.clip(np.concatenate(([low], of.ends)), low, high)
    ends = np.clip(np.concatenate((of.starts, [high])), low, high)
    kept = ends > starts
    return spans(starts[kept], ends[kept])


def overlaps(a: Spans, b: Spans) -> tuple[Array, Array, Spans]:
    """Return every overlap of an interval of `a` with one of `b`: indices into `a` and `b`, and the overlaps.

    The intervals of `a` may overlap and be unsorted; overlaps are in its order. `b` must be a sorted set.
    """
    first = np.searchsorted(b.ends, a.starts, "right")
    counts = np.maximum(np.searchsorted(b.starts, a.ends, "left") - first, 0)
    of_a = np.repeat(np.arange(len(counts)), counts)
    of_b = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts) + first[of_a]
    starts, ends = np.maximum(a.starts[of_a], b.starts[of_b]), np.minimum(a.ends[of_a], b.ends[of_b])
    kept = ends > starts
    return of_a[kept], of_b[kept], Spans(starts[kept], ends[kept])


def intersect(a: Spans, b: Spans) -> Spans:
    """Return the intersection of two sets."""
    return overlaps(a, b)[2]


def subtract(a: Spans, b: Spans) -> Spans:
    """Return the part of `a` outside `b`."""
    if not len(a.starts) or not len(b.starts):
        return a
    return intersect(a, complement(b, int(a.starts[0]), int(a.ends[-1])))


def containing(of: Spans, t: Array) -> Array:
    """Return the index of the interval that contains each instant of `t`; -1 for none."""
    index = np.searchsorted(of.starts, t, "right") - 1
    ends = np.append(of.ends, np.iinfo(np.int64).min)  # index -1: instants before all intervals
    return np.where(t < ends[index], index, -1)


def covered_before(of: Spans, t: Array) -> Array:
    """Return the nanoseconds that the set covers before each instant of `t`."""
    if not len(of.starts):
        return np.zeros(len(t), np.int64)
    totals = np.concatenate(([0], np.cumsum(of.ends - of.starts)))
    index = np.searchsorted(of.starts, t, "right")
    inside = np.maximum(of.ends[index - 1] - t, 0)
    return totals[index] - np.where(index > 0, inside, 0)


def covered_between(of: Spans, instants: Array) -> Array:
    """Return the nanoseconds that the set covers from each instant to the next."""
    return np.diff(covered_before(of, instants))


def covered(of: Spans, starts: Array, ends: Array) -> Array:
    """Return the nanoseconds of each interval [starts[i], ends[i]) that the set covers."""
    return covered_before(of, ends) - covered_before(of, starts)
