"""Add edges into calls in which the host waits: for device work, a slot in a launch queue, or a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fathom.analysis import causes
from fathom.analysis.columns import distinct
from fathom.analysis.intervals import Array
from fathom.analysis.replay.graph import EdgeKind
from fathom.analysis.replay.loader import Feed, feed_of, loader_edges
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.pieces import Launched, usual_mean
from fathom.analysis.replay.team import INPUT, PEERS, SYNC

QUEUE = 1024  # CUDA blocks the next launch on a stream with this many pending ones
NEARLY_FULL = 0.9  # share of the deepest queue in the recording
DEEP = 256  # fewer pending launches never block
LONG_NS = 20_000  # shorter calls do not block
LOST_NS = 40_000  # longer synchronising calls waited, though what they waited for may be unknown
OWN_NS = 5_000.0  # host work in a blocking call, if no call of its name returned at once
# Longest time to hand out a batch that is ready: the larger of these two.
READY_NS = 200_000
KEEPS_UP = 0.02  # of the time since the previous batch
PROMPT_NS = 100_000  # a free slot of a queue is taken within this time
COPY_TAIL_NS = 100_000  # a pageable copy may still run this long after its call returns (some megabytes)
RETURN_NS = 10_000.0  # from the end of device work to the return of the call that waits for it
WHOLE_DEVICE = ("DeviceSynchronize", "CtxSynchronize")


class Blocks(NamedTuple):
    """Parallel arrays: `call` returns after `piece` ends; `waited` if it had to wait in the recording."""

    call: Array
    piece: Array
    waited: Array


def block_edges(part: Part, waits: pl.DataFrame) -> None:
    """Add edges into the returns of calls that wait, and set the host work of those calls (`own`).

    `waits` are the burst's waits, with the pace of the loaders.
    """
    queued = _queues(part)
    every = [
        (EdgeKind.QUEUE, queued),
        (EdgeKind.SYNC, _copies(part)),
        (EdgeKind.SYNC, _syncs(part)),
        (EdgeKind.EVENT, _waits_for_peers(part)),
    ]
    batches = np.array([api == INPUT for api in part.calls.api], bool)
    feed = feed_of(part.calls, np.flatnonzero(batches), waits)
    late = batches & (part.calls.length > _handing_out(part.calls.end, batches))
    late[feed.call[feed.was_ready]] = False
    part.calls.queued[queued.call[queued.waited]] = True
    _set_own(part, np.concatenate([blocks.call[blocks.waited] for _, blocks in every]), late)
    for kind, blocks in every:
        back = (part.calls.end[blocks.call] - part.pieces.end[blocks.piece]).astype(float)
        usual = usual_mean(back[blocks.waited], RETURN_NS)
        kept = np.where(_last(blocks, part.pieces.end), back, np.minimum(back, usual))
        part.edges.add(kind, part.ends[blocks.piece], part.done[blocks.call], kept, usual)
    _batches(part, np.flatnonzero(late), feed)
    loader_edges(part, late, feed)


def _handing_out(ends: Array, batches: Array) -> Array:
    """Return the longest time in ns that each call may take to hand out a batch that is ready."""
    since = np.diff(ends[batches]).astype(float)
    most = np.full(len(ends), float(READY_NS))
    if len(since):
        most[batches] = np.maximum(READY_NS, KEEPS_UP * np.append(since.mean(), since))
    return most


def _last(blocks: Blocks, ends: Array) -> Array:
    """Return a mask of the pieces that ended last among those that their call waited for."""
    order = np.lexsort((ends[blocks.piece], blocks.call))
    last = np.append(blocks.call[order][1:] != blocks.call[order][:-1], True)[: len(order)]
    mask = np.zeros(len(order), bool)
    mask[order] = last
    return mask & blocks.waited


def _set_own(part: Part, waiting: Array, late: Array) -> None:
    calls = part.calls
    apis, prompt = np.array(calls.api, object), calls.length <= LOST_NS
    waits = np.zeros(len(apis), bool)
    waits[waiting] = True
    for api in set(apis[waits].tolist()):
        mine = apis == api
        usual = usual_mean(calls.length[mine & ~waits & prompt], OWN_NS)
        calls.own[mine & waits] = np.minimum(usual, calls.length[mine & waits])
    calls.own[late] = 0.0


def _queues(part: Part) -> Blocks:
    """Return the launches, and the pieces that free a slot in the queue when they end."""
    launched = Launched(part.pieces)
    return _joined([_queue(part, launched.queue(line)) for line in launched.lines])


def _queue(part: Part, queue: Array) -> Blocks:
    pieces, calls = part.pieces, part.calls
    queue = queue[(pieces.call[queue] >= 0) & ~pieces.inner[queue]]
    call = pieces.call[queue]
    ended = np.searchsorted(np.sort(pieces.end[queue]), calls.end[call], "right")
    pending = np.arange(len(queue)) - ended
    deepest = int(pending.max(initial=0))
    full = (calls.length[call] > LONG_NS) & (pending >= max(DEEP, NEARLY_FULL * deepest)) & (ended > 0)
    made = pieces.end[queue[np.maximum(ended - 1, 0)]] if len(queue) else ended
    full &= calls.end[call] - made <= PROMPT_NS
    depth = int(np.median(pending[full])) if full.any() else max(QUEUE, deepest)
    room = np.where(full, ended - 1, np.arange(len(queue)) - depth - 1)
    piece = queue[np.maximum(room, 0)] if len(queue) else queue
    rows = (room >= 0) & (pieces.end[piece] <= calls.end[call]) & calls.team[call]
    part.facts["launches blocked"] = part.facts.get("launches blocked", 0.0) + float(full.sum())
    return Blocks(call[rows], piece[rows], full[rows])


def _copies(part: Part) -> Blocks:
    """Return copies that block their call until they are done or, if pageable, until their stream is free."""
    pieces, calls = part.pieces, part.calls
    rows = np.flatnonzero((pieces.call >= 0) & ~pieces.inner & pieces.of_kind("copy"))
    call = pieces.call[rows]
    way = np.array([_blocking(name) for name in pieces.directions], object)[pieces.direction[rows]]
    to_host = np.array([str(w) == "out" for w in way], bool)
    either = np.array([bool(w) for w in way], bool)
    synchronous = np.array(["Async" not in calls.api[c] for c in call.tolist()], bool)
    here = calls.team[call] & (synchronous | to_host | (either & (calls.length[call] > LONG_NS)))
    tail = np.where(to_host | synchronous, 0, COPY_TAIL_NS)
    done = here & (pieces.end[rows] <= calls.end[call] + tail)
    before = np.maximum(pieces.before[rows], 0)
    behind = here & ~done & (pieces.before[rows] >= 0)
    behind &= (pieces.end[before] > calls.start[call]) & (pieces.end[before] <= calls.end[call])
    both = np.concatenate((rows[done], before[behind]))
    return Blocks(np.concatenate((call[done], call[behind])), both, np.ones(len(both), bool))


def _blocking(direction: str) -> str:
    """Return how a copy may block its call: "out" (to the host), "in" (from it), or "" (never)."""
    if "pinned" in direction or direction[:4] not in ("DtoH", "HtoD"):
        return ""
    return "out" if direction.startswith("DtoH pageable") else "in"


def _syncs(part: Part) -> Blocks:
    """Return synchronising calls, and the last work launched before them on the streams they wait for."""
    calls = part.calls
    mine = np.array([causes.api_cause(api) == SYNC for api in calls.api], bool)
    # Blocking copies are matched with their own pieces, in `_copies`.
    mine[part.pieces.call[(part.pieces.call >= 0)]] = False
    rows = np.flatnonzero(mine & calls.team)
    if not len(rows) or not len(part.pieces.start):
        return _joined([])
    all_streams = np.array([api.endswith(WHOLE_DEVICE) for api in np.array(calls.api, object)[rows]], bool)
    last = _last_of_lines(part, rows)
    event = np.array(["Event" in calls.api[row] for row in rows.tolist()], bool)
    single = ~all_streams
    of_device = _device_syncs(part, rows[all_streams], last[all_streams])
    return _joined([of_device, _stream_syncs(part, rows[single], last[single], event[single])])


def _waits_for_peers(part: Part) -> Blocks:
    """Return the program's waits for collectives of host threads, and the last one of each thread that had
    been called before and ended by then.
    """
    pieces, calls = part.pieces, part.calls
    rows = np.array([row for row, api in enumerate(calls.api) if api == PEERS], np.int64)
    blocks = [_joined([])]
    for line in distinct(pieces.line).tolist() if len(rows) else []:
        mine = np.flatnonzero(pieces.line == line)
        place = np.searchsorted(pieces.end[mine], calls.end[rows], "right") - 1
        piece = mine[np.maximum(place, 0)]
        known = (place >= 0) & (pieces.launched[piece] < calls.start[rows])
        waited = pieces.end[piece] > calls.start[rows]
        blocks.append(Blocks(rows[known], piece[known], waited[known]))
    return _joined(blocks)


def _last_of_lines(part: Part, rows: Array) -> Array:
    """Return calls x streams: the last piece launched before the call; -1 if none, or if it ends later."""
    launched = Launched(part.pieces)
    last = np.column_stack([launched.before(line, part.calls.start[rows]) for line in launched.lines])
    outlived = part.pieces.end[np.maximum(last, 0)] > part.calls.end[rows][:, None]
    return np.where(outlived, -1, last)


def _device_syncs(part: Part, rows: Array, last: Array) -> Blocks:
    call, line = np.nonzero(last >= 0)
    piece = last[call, line]
    return Blocks(rows[call], piece, part.pieces.end[piece] > part.calls.start[rows[call]])


def _stream_syncs(part: Part, rows: Array, last: Array, event: Array) -> Blocks:
    """Return waits for the stream whose work ended last inside the call, else that last launched to."""
    pieces, calls = part.pieces, part.calls
    ends = np.where(last >= 0, pieces.end[np.maximum(last, 0)], -1)
    latest = last[np.arange(len(rows)), ends.argmax(1)] if len(rows) else rows
    waited = ends.max(1, initial=-1) > calls.start[rows]
    recent = np.where(last >= 0, pieces.launched[np.maximum(last, 0)], np.iinfo(np.int64).min)
    asked = last[np.arange(len(rows)), recent.argmax(1)] if len(rows) else rows
    piece = np.where(waited, latest, np.where(event, -1, asked))
    piece = np.where(
        waited, piece, np.where(event & (calls.length[rows] > LONG_NS), _prompt(part, rows), piece)
    )
    waited |= (piece >= 0) & (pieces.end[np.maximum(piece, 0)] > calls.start[rows])
    lost = ~waited & (calls.length[rows] > LOST_NS)
    part.facts["synchronisations undetermined"] = float(lost.sum())
    known = (piece >= 0) & ~lost
    return Blocks(rows[known], piece[known], waited[known])


def _prompt(part: Part, rows: Array) -> Array:
    """Return the piece that ended last inside each call and was launched before it; -1 for none."""
    pieces, calls = part.pieces, part.calls
    order = np.argsort(pieces.end, kind="stable")
    place = np.searchsorted(pieces.end[order], calls.end[rows], "right") - 1
    piece = order[np.maximum(place, 0)]
    inside = (
        (place >= 0) & (pieces.end[piece] > calls.start[rows]) & (pieces.launched[piece] < calls.start[rows])
    )
    return np.where(inside, piece, -1)


def _joined(blocks: list[Blocks]) -> Blocks:
    nothing = Blocks(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))
    return Blocks(*(np.concatenate(column) for column in zip(nothing, *blocks, strict=True)))


def _batches(part: Part, late: Array, feed: Feed) -> None:
    """Add edges between late batches of unknown pace: each follows the one before, the first its request."""
    part.facts["batches waited for"] = float(len(late))
    late = late[~np.isin(late, feed.call)]
    if not len(late):
        return
    ends = part.calls.end[late]
    sources = np.append(part.begin[late[0]], part.done[late[:-1]])
    after = np.append(part.calls.length[late[0]], np.diff(ends))
    part.edges.add(EdgeKind.LOADER, sources, part.done[late], after, other=1)
