"""Divide the time of windows among the pieces of work that run at each instant, and find the idle gaps."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.device import COPY, DeviceWork
from fathom.analysis.intervals import Array, Spans, instants, overlaps

IDLE = COPY + 1


class Busy(msgspec.Struct):
    """Busy time in ns per window and group, in parallel arrays; `idle` are the gaps, not cut at windows."""

    window: Array
    group: Array
    ns: Array
    idle: Spans


def share(work: DeviceWork, starts: Array, ends: Array) -> Busy:
    """Assign each instant of the windows to the first class that runs, shared equally by its running pieces.

    The windows [starts, ends) must be sorted and disjoint. Shares are whole nanoseconds and sum exactly to
    the time of their class.
    """
    points = instants(np.concatenate((work.starts, work.ends, starts, ends)))
    lengths = np.diff(points)
    level, count = _levels(work, points)
    piece, window, parts = overlaps(Spans(work.starts, work.ends), Spans(starts, ends))
    group = work.group[piece]
    classes = work.classes[group]
    shares: list[tuple[Array, Array, Array]] = []
    for kind in range(IDLE):
        mine = np.flatnonzero(classes == kind)
        holds = np.concatenate(([0], np.cumsum(np.where(level == kind, lengths, 0))))
        each = np.where(level == kind, lengths / np.maximum(count[kind], 1), 0.0)
        sums = np.concatenate(([0.0], np.cumsum(each)))
        first, last = np.searchsorted(points, (parts.starts[mine], parts.ends[mine]))
        totals = np.diff(holds[np.searchsorted(points, (starts, ends))], axis=0)[0]
        shares.append(_rounded(window[mine], group[mine], sums[last] - sums[first], totals))
    window, group, ns = (np.concatenate(column) for column in zip(*shares, strict=True))
    return Busy(window, group, ns, _gaps(points, level))


def _levels(work: DeviceWork, points: Array) -> tuple[Array, list[Array]]:
    """Return the class of each segment between points, and per class the count of pieces that run there."""
    kinds = work.classes[work.group]
    count = []
    level = np.full(max(len(points) - 1, 0), IDLE)
    for kind in range(IDLE):
        mine = kinds == kind
        opens = np.bincount(np.searchsorted(points, work.starts[mine]), minlength=len(points))
        closes = np.bincount(np.searchsorted(points, work.ends[mine]), minlength=len(points))
        count.append(np.cumsum(opens - closes)[:-1])
    for kind in reversed(range(IDLE)):
        level[count[kind] > 0] = kind
    return level, count


def _rounded(window: Array, group: Array, shares: Array, totals: Array) -> tuple[Array, Array, Array]:
    """Return shares by (window, group), rounded to integers that sum to the `totals` of each window.

    Each share is rounded down. The remainder is then added, 1 ns at a time, to the shares with the largest
    fractions.
    """
    width = int(group.max(initial=0)) + 1
    keys, inverse = np.unique(window * width + group, return_inverse=True)
    exact = np.bincount(inverse, weights=shares, minlength=len(keys))
    window, group = keys // width, keys % width
    rounded = np.floor(exact + 1e-6).astype(np.int64)
    missing = totals - np.bincount(window, weights=rounded, minlength=len(totals)).astype(np.int64)
    order = np.lexsort((rounded - exact, window))
    rank = np.arange(len(keys)) - np.searchsorted(window[order], window[order], "left")
    sizes = np.bincount(window, minlength=len(totals))[window[order]]
    extra, more = np.divmod(missing[window[order]], np.maximum(sizes, 1))
    rounded[order] += extra + (rank < more)
    return window, group, rounded


def _gaps(points: Array, level: Array) -> Spans:
    """Return the spans in which nothing runs, not cut at window bounds."""
    idle = np.concatenate(([False], level == IDLE, [False]))
    edges = np.flatnonzero(idle[1:] != idle[:-1])
    return Spans(points[edges[::2]], points[edges[1::2]])
