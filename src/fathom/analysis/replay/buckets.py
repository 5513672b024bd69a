"""Another size of the buckets in which gradients are reduced: merged or split all-reduces of each step.

All-reduces of one group and dtype whose results nothing needs before the next one is called are buckets.
Neighbours merge until they reach the size, as in DistributedDataParallel. The merged collective starts when
its last member did and takes the time of all, less the fixed time of all but one. A larger bucket is split
into equal parts, which start as its gradients become ready: evenly since the previous bucket began.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.causes import of_engine
from fathom.analysis.communication import FixedTime, fixed_time, shared_out
from fathom.analysis.intervals import Array
from fathom.analysis.replay.changes import Change
from fathom.analysis.replay.graph import EdgeKind
from fathom.analysis.replay.part import Part

OPERATION = "all_reduce"
CALLING = r"^record_param_comms$|^c10d::"
UNKNOWN_SIZES = "the recording has no all-reduces whose sizes are known"
UNMATCHED = "the collectives with sizes are not those of the timeline"


class Bucket(msgspec.Struct, frozen=True):
    """All-reduces of a part, in the order of their calls, that may share a bucket; parallel arrays."""

    pieces: Array
    sizes: Array  # bytes
    lengths: Array  # ns, as `shared_out`
    since: float  # ns: begin of the backward pass, or else the start of the first


class Buckets(msgspec.Struct):
    """The buckets of one rank's parts, by burst, and the fixed time of their collectives."""

    parts: dict[int, Part]
    runs: dict[int, list[Bucket]]
    fixed: FixedTime
    host_ns: float  # of the host, to call one collective

    def lengths(self, part: Part, change: Change) -> tuple[Array, Array]:
        """Return the new length of each piece (NaN: as before) with a change of buckets, and a mask of the
        pieces that are merged into a later one. The pieces of a peer follow those that they meet.
        """
        limit, fixed_ns = change.factor or np.inf, self.fixed.bound(change.pattern)
        own = self.parts[part.burst]
        lengths, merged = np.full(len(own.pieces.start), np.nan), np.zeros(len(own.pieces.start), bool)
        for run in self.runs[part.burst]:
            for first, last in filled(run.sizes, limit):
                rows = run.pieces[first : last + 1]
                merged[rows[:-1]], lengths[rows[:-1]] = True, 0.0
                if last > first:
                    total = run.lengths[first : last + 1].sum() - (last - first) * fixed_ns
                    lengths[rows[-1]] = max(total, run.lengths[first : last + 1].max())
                elif run.sizes[first] >= 2 * limit:
                    lengths[rows[-1]] = _split(own, run, first, int(run.sizes[first] // limit), fixed_ns)
        return (lengths, merged) if part is own else _of_peer(part, own, lengths, merged)

    def count(self, limit: float) -> tuple[int, int]:
        """Return the number of collectives before and with buckets of `limit` bytes."""
        runs = [run for mine in self.runs.values() for run in mine]
        each = [run.sizes[first : last + 1] for run in runs for first, last in filled(run.sizes, limit)]
        after = (int(max(sizes[0] // limit, 1)) if len(sizes) == 1 else 1 for sizes in each)
        return sum(len(run.pieces) for run in runs), sum(after)


def _of_peer(part: Part, own: Part, lengths: Array, merged: Array) -> tuple[Array, Array]:
    met = np.flatnonzero(own.pieces.met)
    order = met[np.argsort(own.pieces.arrived[met], kind="stable")]
    place = np.searchsorted(own.pieces.arrived[order], part.pieces.arrived)
    at = order[np.minimum(place, max(len(order) - 1, 0))] if len(order) else np.zeros(len(place), np.int64)
    same = (
        part.pieces.met & (own.pieces.arrived[at] == part.pieces.arrived) if len(order) else part.pieces.met
    )
    return np.where(same, lengths[at], np.nan), same & merged[at]


def filled(sizes: Array, limit: float) -> Iterator[tuple[int, int]]:
    """Yield the first and last member of each bucket, which is full as soon as it reaches the limit."""
    first, size = 0, 0.0
    for place, own in enumerate(sizes.tolist()):
        if place > first and own >= limit:  # it fills a bucket alone
            yield first, place - 1
            first, size = place, 0.0
        size += own
        if size >= limit:
            yield first, place
            first, size = place + 1, 0.0
    if first < len(sizes):
        yield first, len(sizes) - 1


def _split(part: Part, run: Bucket, place: int, count: int, fixed_ns: float) -> float:
    """Return how long a bucket in `count` parts takes after its recorded start.

    The first part is ready when a share of the time since the previous bucket's start has passed.
    """
    pieces, piece = part.pieces, run.pieces[place]
    each = (run.lengths[place] + (count - 1) * fixed_ns) / count
    begun = np.where(pieces.met, pieces.arrived, pieces.start)
    start, free = float(pieces.start[piece]), -np.inf
    since = run.since
    if place:
        since, free = float(pieces.start[run.pieces[place - 1]]), float(pieces.end[run.pieces[place - 1]])
    for ready in np.linspace(since, start, count + 1)[1:]:
        free = max(free, float(ready) + float(begun[piece]) - start) + each
    return max(free - float(begun[piece]), each)


def buckets_of(parts: Sequence[Part], calls: pl.DataFrame, marks: Array, on_host: bool) -> Buckets | str:
    """Return the buckets of one rank, or the reason why they are unknown.

    `calls` has the collectives of the timeline with their sizes, in the columns of `collectives_of`; `marks`
    are the bounds of steps.
    """
    own = [np.flatnonzero(part.pieces.of_kind("collective")) for part in parts]
    calls = calls.filter(phase="timeline").sort("start_ns", "stream", maintain_order=True)
    if sum(map(len, own)) != calls.height:
        return UNMATCHED
    known = calls["operation"].eq_missing(OPERATION).to_numpy() & (calls["bytes"].fill_null(0) > 0).to_numpy()
    if not known.any():
        return UNKNOWN_SIZES
    key = calls.select(pl.struct("operation", "dtype", "group").rank("dense")).to_series().to_numpy()
    size, at, runs, every = calls["bytes"].fill_null(0).to_numpy(), 0, {}, []
    for part, rows in zip(parts, own, strict=True):
        mine = slice(at, at + len(rows))
        at += len(rows)
        chosen = known[mine]
        runs[part.burst] = list(_runs(part, rows[chosen], key[mine][chosen], size[mine][chosen], marks))
        every += runs[part.burst]
    sizes, lengths = (np.concatenate([getattr(run, name) for run in every]) for name in ("sizes", "lengths"))
    host_ns = float(np.median([_calling_ns(part) for part in parts]))
    return Buckets({part.burst: part for part in parts}, runs, fixed_time(sizes, lengths, on_host), host_ns)


def _calling_ns(part: Part) -> float:
    """Return the median time of the host in an op that calls a collective; 0 if none was recorded."""
    ops = part.team.ops.filter(pl.col("name").str.contains(CALLING))
    return float((ops["end_ns"] - ops["start_ns"]).median() or 0.0)  # type: ignore[arg-type]


def _runs(part: Part, rows: Array, key: Array, size: Array, marks: Array) -> Iterator[Bucket]:
    """Yield the stretches of all-reduces of one key and step that nothing needs in between."""
    pieces = part.pieces
    called, needed = _asked(part)[rows], _needed(part)[rows]
    begun = np.where(pieces.met[rows], pieces.arrived[rows], pieces.start[rows])
    length, step = shared_out(begun, pieces.end[rows]), np.searchsorted(marks, called, "right")
    for group in np.unique(np.column_stack((key, step)), axis=0).tolist():
        mine = np.flatnonzero((key == group[0]) & (step == group[1]))
        mine = mine[np.argsort(called[mine], kind="stable")]
        for part_of in _unneeded(mine, needed, called):
            since = _since(part, rows[part_of[0]], marks)
            yield Bucket(rows[part_of], size[part_of], length[part_of], since)


def _since(part: Part, piece: int, marks: Array) -> float:
    """Return when the backward pass of the step began, on the device; the start of `piece` if unknown."""
    pieces, calls, start = part.pieces, part.calls, float(part.pieces.start[piece])
    call = pieces.call[piece]
    if call < 0:
        return start
    mark = marks[max(np.searchsorted(marks, calls.start[call], "right") - 1, 0)]
    engine = part.team.ops.filter(of_engine(), pl.col("start_ns").is_between(mark, int(start)))
    own = (pieces.call >= 0) & (calls.thread[pieces.call] == calls.thread[call]) & (pieces.launched >= mark)
    own &= ~pieces.of_kind("collective")
    if own.any() and calls.thread[call] != min(part.team.threads):
        return min(float(pieces.start[own].min()), start)
    return start if engine.is_empty() or own.any() else float(engine["start_ns"].min())  # type: ignore[arg-type]


def _unneeded(mine: Array, needed: Array, called: Array) -> Iterator[Array]:
    """Split collectives before those that are called after the result of an earlier one was needed."""
    first, until = 0, np.inf
    for place, row in enumerate(mine.tolist()):
        if called[row] >= until:
            yield mine[first:place]
            first, until = place, np.inf
        until = min(until, needed[row])
    yield mine[first:]


def _asked(part: Part) -> Array:
    """Return when the host asks for each piece; its start if that is unknown or part of a graph."""
    pieces = part.pieces
    return np.where((pieces.call >= 0) & ~pieces.inner, pieces.launched, pieces.start)


def _needed(part: Part) -> Array:
    """Return when the host asks for the first work that waits for each piece; infinite if none does."""
    edges, asked = part.edges.table(), np.full(part.count, np.inf)
    asked[part.done - part.origin] = part.calls.start
    other = ~part.pieces.of_kind("collective")
    asked[part.starts[other] - part.origin] = _asked(part)[other]
    waits = np.isin(edges.kind, (EdgeKind.EVENT, EdgeKind.SYNC))
    first = np.full(part.count, np.inf)
    np.minimum.at(first, edges.source[waits] - part.origin, asked[edges.target[waits] - part.origin])
    return first[part.ends - part.origin]
