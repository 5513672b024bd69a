"""Compute the weights of the graph's edges from changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from fathom.analysis.entries import Entry
from fathom.analysis.intervals import Array, Spans, containing, covered
from fathom.analysis.replay.changes import BUCKET, CAUSES, DEVICE, LATE, RECOMPUTED, WAITING, Change
from fathom.analysis.replay.graph import NEVER, EdgeKind, EdgeTable
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.pieces import Pieces

# Causes that recording lengthens, in addition to launch latency (decision 2).
PYTHON, DISPATCHING = Entry.PYTHON.cause, Entry.DISPATCHING.cause
LONG_NS = 1_000_000  # recording adds µs per record, so it hardly lengthens longer stretches without records


class Durations(msgspec.Struct):
    """New durations of a part: the host's time up to each knot, factors on calls, and times of pieces."""

    elapsed: Array
    call: Array  # factor on a call's time
    piece: Array
    pace: Array  # factor on a piece's time
    latency: float
    gap: float
    loader: Change | None
    synchronous: bool
    waiting: bool = True  # collectives wait for peers
    punctual: bool = False  # no peer waits for this rank
    merged: Array | None = None  # mask of the pieces that a later one replaces

    @classmethod
    def of(cls, part: Part, changes: Sequence[Change], host: float = 1.0, long: float = 1.0) -> Durations:
        """Apply changes to a part.

        `host` is a factor on time that recording lengthens, `long` one on stretches of LONG_NS and more
        without records.
        """
        elapsed, call = _host(part, tuple(c for c in changes if c.selector not in DEVICE), host, long)
        length = part.pieces.length.astype(float)
        piece = _piece_times(part, changes, length)
        merged = None
        for change in changes:
            if change.selector == BUCKET and part.buckets is not None:
                new, merged = part.buckets.lengths(part, change)
                piece = np.where(np.isnan(new), piece, new)
        return cls(
            elapsed,
            call,
            piece,
            np.divide(piece, length, out=np.ones_like(length), where=length > 0),
            host * _product(changes, "launch-latency"),
            _product(changes, "device-gap"),
            next((c for c in changes if c.selector == "input"), None),
            not any(c.selector == "sync" for c in changes),
            not any(c.selector == WAITING for c in changes),
            any(c.selector == LATE and int(c.pattern) == part.rank for c in changes),
            merged,
        )


def _host(part: Part, changes: tuple[Change, ...], host: float, long: float) -> tuple[Array, Array]:
    """Return the host's time up to each knot, and factors on calls; many replays have the same."""
    key = changes, host, long
    if key not in part.hosts:
        factors = _host_factors(part, changes, host, long)
        elapsed = np.concatenate(([0.0], np.cumsum(part.working_ns * factors)))
        part.hosts[key] = elapsed, _call_factors(part, factors)
    return part.hosts[key]


def _product(changes: Sequence[Change], selector: str) -> float:
    return float(np.prod([c.factor for c in changes if c.selector == selector and c.factor is not None]))


def _host_factors(part: Part, changes: Sequence[Change], host: float, long: float) -> Array:
    """Return factors by interval. The recorder may cause a pause between ops, however long it is."""
    masks = part.team.masks
    factors = np.where(masks[PYTHON], host, 1.0) if PYTHON in masks else np.ones(len(part.team.call))
    if DISPATCHING in masks:
        in_ops = np.where(part.working_ns < LONG_NS, host, long)
        factors = np.where(masks[DISPATCHING], factors * in_ops, factors)
    for change in changes:
        rows, by = _rows(part, change)
        factors[rows] *= by[rows] if isinstance(by, np.ndarray) else by
    return factors


def _rows(part: Part, change: Change) -> tuple[Array, Array | float]:
    """Return a mask of the intervals that a change affects, and its factor on them."""
    if change not in part.intervals_of:
        part.intervals_of[change] = _intervals(part, change)
    return part.intervals_of[change]


def _intervals(part: Part, change: Change) -> tuple[Array, Array | float]:
    team, nothing = part.team, np.zeros(len(part.team.call), bool)
    factor = 1.0 if change.factor is None else change.factor
    if change.selector in (*CAUSES, "input"):
        return team.masks.get(change.selector, nothing), factor
    if change.selector == "sync":
        return team.masks.get(Entry.SYNCHRONISATION.cause, nothing), 0.0
    if change.selector == "op":
        return team.named(change), factor
    if change.selector == RECOMPUTED:
        return team.recomputing(), factor
    if change.selector == "launch":
        return _launching(part, change)
    return nothing, 1.0


def _launching(part: Part, change: Change) -> tuple[Array, Array | float]:
    calls, call = part.calls, part.team.call
    launches = np.zeros(len(calls.start) + 1, bool)
    launches[part.pieces.call[part.pieces.call >= 0]] = True
    if change.ns is None:
        return launches[call], change.of(1.0)
    own = np.append(calls.own, 1.0)[call]
    return launches[call], np.divide(change.ns, own, out=np.ones(len(own)), where=own > 0)


def _call_factors(part: Part, factors: Array) -> Array:
    """Return factors on the host work of each call."""
    was, now = part.called_ns, part.of_calls(part.working_ns * factors)
    return np.divide(now, was, out=np.ones(len(was)), where=was > 0)


def _piece_times(part: Part, changes: Sequence[Change], length: Array) -> Array:
    for change in changes:
        if change.of_the_host or change.selector in (WAITING, LATE, BUCKET):
            continue
        if change not in part.pieces_of:
            part.pieces_of[change] = _pieces(part, change)
        rows = part.pieces_of[change]
        length = np.where(rows, change.of(1.0) * length if change.ns is None else change.ns, length)
    return length


def moving_ns(part: Part, changes: Sequence[Change], windows: Spans) -> Counter[int]:
    """Return the time in which collectives that begin in `windows` move bytes, by stream, with `changes`."""
    pieces = part.pieces
    inside = containing(windows, pieces.start) >= 0
    length = np.where(inside & pieces.of_kind("collective"), pieces.length, 0).astype(float)
    sums = np.bincount(pieces.line, _piece_times(part, changes, length))
    return Counter(dict(enumerate(sums.tolist())))


def _pieces(part: Part, change: Change) -> Array:
    """Return a mask of the pieces that a change affects."""
    rows = _recomputed_pieces(part) if change.selector == RECOMPUTED else _of_kinds(part.pieces, change)
    return rows & named_pieces(part, change) if change.pattern else rows


def _of_kinds(pieces: Pieces, change: Change) -> Array:
    kinds = DEVICE[change.selector]
    return pieces.of_kind(*kinds) if kinds else np.ones(len(pieces.start), bool)


def _recomputed_pieces(part: Part) -> Array:
    """Return a mask of the pieces that the team launched during recomputation, except collectives."""
    pieces, called = part.pieces, part.pieces.call >= 0
    if called.any():
        mine = called & part.calls.team[np.maximum(pieces.call, 0)] & ~pieces.of_kind("collective")
        when = pieces.launched
    else:
        mine, when = np.ones(len(called), bool), pieces.start
    return mine & (covered(part.team.recomputed, when, when + 1) > 0)


def named_pieces(part: Part, change: Change) -> Array:
    """Return a mask of the pieces whose family (of copies: direction) matches the change's pattern."""
    pieces = part.pieces
    names, codes = (
        (pieces.directions, pieces.direction)
        if change.selector == "copy"
        else (pieces.families, pieces.family)
    )
    matches = _matching(change.pattern, tuple(names))
    return matches[codes] if len(names) else np.zeros(len(codes), bool)


@lru_cache(maxsize=4096)
def _matching(pattern: str, names: tuple[str, ...]) -> Array:
    """Return a mask of the names that a pattern matches; cached, because replays repeat it."""
    change = Change("family", pattern)
    return np.array([change.matches(name) for name in names], bool)


def changes_something(part: Part, change: Change) -> bool:
    """Return whether the part has anything that the change affects."""
    if change.selector in DEVICE:
        return bool(_of_kinds(part.pieces, change).any())
    if change.selector in (WAITING, LATE):
        return bool(part.pieces.met.any())
    if change.selector == BUCKET:
        return part.buckets is not None
    return change.selector in ("launch-latency", "device-gap") or bool(_rows(part, change)[0].any())


class PartEdges(msgspec.Struct, frozen=True):
    """One part's edges by kind; `piece` and `other` are indices within the part."""

    rows: Array  # of the graph's edges
    edges: EdgeTable
    of_kind: dict[EdgeKind, Array]
    worked: tuple[Array, Array]  # of HOST edges: the knots that they lie between
    completing: Array  # edges at whose target a piece ends

    @classmethod
    def of(cls, part: Part, rows: Array, every: EdgeTable) -> PartEdges:
        """Return the edges at `rows` of the graph's edges."""
        edges = EdgeTable(*(column[rows] for column in every))
        of_kind = {kind: np.flatnonzero(edges.kind == kind) for kind in EdgeKind}
        knot = np.zeros(part.count, np.int64)
        knot[part.anchors - part.origin] = part.knot_of_anchor
        host = of_kind[EdgeKind.HOST]
        worked = knot[edges.source[host] - part.origin], knot[edges.target[host] - part.origin]
        return cls(rows, edges, of_kind, worked, np.flatnonzero(edges.piece >= 0))


def weights(own: PartEdges, part: Part, durations: Durations, typical: bool) -> Array:
    """Return the weights of a part's edges, in ns."""
    edges, of_kind, elapsed = own.edges, own.of_kind, durations.elapsed
    values = np.array(edges.typical if typical else edges.kept, float)
    before, after = own.worked
    values[of_kind[EdgeKind.HOST]] = elapsed[after] - elapsed[before]
    rows = of_kind[EdgeKind.LAUNCH]
    values[rows] = _latencies(part, durations, edges.other[rows], values[rows])
    rows = of_kind[EdgeKind.STREAM]
    if len(rows):
        values[rows] *= np.where(values[rows] < 0, durations.pace[edges.other[rows]], durations.gap)
    if durations.loader is not None:
        rows = of_kind[EdgeKind.LOADER]
        new = durations.loader
        batches = edges.other[rows]  # between the source and the target
        values[rows] = values[rows] * new.of(1.0) if new.ns is None else new.ns * batches
    if not durations.synchronous:
        values[of_kind[EdgeKind.SYNC]] = NEVER
    if not durations.waiting:
        values[of_kind[EdgeKind.MEETING]] = NEVER
    if durations.merged is not None:
        rows = of_kind[EdgeKind.MEETING]
        values[rows[durations.merged[edges.piece[rows]]]] = NEVER
    if durations.punctual:
        values[of_kind[EdgeKind.PEER]] = NEVER
    values[own.completing] += durations.piece[edges.piece[own.completing]]
    return values


def _latencies(part: Part, durations: Durations, call: Array, slack: Array) -> Array:
    """Return times from calls to their work: the part inside the call scales with it, the rest is latency."""
    if not len(call):
        return slack
    inside = np.where(call >= 0, np.clip(slack, 0.0, part.calls.own[call]), 0.0)
    rest = slack - inside
    return inside * durations.call[call] + np.where(rest > 0, rest * durations.latency, rest)
