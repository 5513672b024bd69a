"""Calls in which the host waits: for device work to end, for room in a launch queue, for a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fathom.analysis import causes
from fathom.analysis.intervals import Array
from fathom.analysis.replay.graph import Kind
from fathom.analysis.replay.host import INPUT, SYNC
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.pieces import Launched
from fathom.analysis.replay.typical import usual_mean

QUEUE = 1024  # launches that CUDA holds for a stream before the next one blocks
NEARLY_FULL = 0.9  # of the deepest queue seen
DEEP = 256  # fewer pending launches than this never block one
LONG_NS = 20_000  # calls that are shorter don't block
OWN_NS = 5_000.0  # of a call that blocks, where no call of its name ever returned at once
READY_NS = 200_000  # a batch that took longer was not ready, unless it took less
KEEPS_UP = 0.02  # of the time since the one before: to hand out a ready one takes time too
PROMPT_NS = 100_000  # room in a queue is taken so soon after it was made
STAGED_NS = 100_000  # the last part of a staged copy, some megabytes, is on its way when the call returns
RETURN_NS = 10_000.0  # from the end of device work to the return of the call that waited for it
WHOLE_DEVICE = ("DeviceSynchronize", "CtxSynchronize")


class Blocks(NamedTuple):
    """Parallel arrays: `call` returns only after `piece` ended; `waited`: in the recording it had to wait."""

    call: Array
    piece: Array
    waited: Array


def block_edges(part: Part) -> None:
    """Edges into the returns of calls that wait, and what is left of those calls without waiting (`own`)."""
    found = [(Kind.QUEUE, _queues(part)), (Kind.SYNC, _copies(part)), (Kind.SYNC, _syncs(part))]
    batches = np.array([api == INPUT for api in part.calls.api], bool)
    late = batches & (part.calls.length > _handing_out(part.calls.end, batches))
    queued = found[0][1]
    part.calls.queued[queued.call[queued.waited]] = True
    _set_own(part, np.concatenate([b.call[b.waited] for _, b in found]), late)
    for kind, blocks in found:
        back = (part.calls.end[blocks.call] - part.pieces.end[blocks.piece]).astype(float)
        usual = usual_mean(back[blocks.waited], RETURN_NS)
        kept = np.where(_last(blocks, part.pieces.end), back, np.minimum(back, usual))
        part.edges.add(kind, part.ends[blocks.piece], part.done[blocks.call], kept, usual)
    _batches(part, np.flatnonzero(late))


def _handing_out(ends: Array, batches: Array) -> Array:
    """The most that it takes to hand out a batch that was ready: nanoseconds, for each call."""
    since = np.diff(ends[batches]).astype(float)
    found = np.full(len(ends), float(READY_NS))
    if len(since):
        found[batches] = np.maximum(READY_NS, KEEPS_UP * np.append(since.mean(), since))
    return found


def _last(blocks: Blocks, ends: Array) -> Array:
    """Of the pieces that a call waited for, the one that ended last."""
    order = np.lexsort((ends[blocks.piece], blocks.call))
    last = np.append(blocks.call[order][1:] != blocks.call[order][:-1], True)[: len(order)]
    found = np.zeros(len(order), bool)
    found[order] = last
    return found & blocks.waited


def _set_own(part: Part, waiting: Array, late: Array) -> None:
    calls = part.calls
    apis = np.array(calls.api, object)
    waits = np.zeros(len(apis), bool)
    waits[waiting] = True
    for api in set(apis[waits].tolist()):
        mine = apis == api
        usual = usual_mean(calls.length[mine & ~waits], OWN_NS)
        calls.own[mine & waits] = np.minimum(usual, calls.length[mine & waits])
    calls.own[late] = 0.0


def _queues(part: Part) -> Blocks:
    """Launches and the piece that has to end before there is room for theirs."""
    launched = Launched(part.pieces)
    found = [_queue(part, launched.queue(line)) for line in launched.lines]
    return _joined(found)


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
    """Copies that return only when they are done; or, from pageable memory, when their stream is free."""
    pieces, calls = part.pieces, part.calls
    rows = np.flatnonzero((pieces.call >= 0) & ~pieces.inner & pieces.of_kind("copy"))
    call = pieces.call[rows]
    way = np.array([_blocking(name) for name in pieces.directions], object)[pieces.direction[rows]]
    to_host = np.array([str(w) == "out" for w in way], bool)
    either = np.array([bool(w) for w in way], bool)
    held = np.array(["Async" not in calls.api[c] for c in call.tolist()], bool)
    here = calls.team[call] & (held | to_host | (either & (calls.length[call] > LONG_NS)))
    part_left = np.where(to_host | held, 0, STAGED_NS)
    done = here & (pieces.end[rows] <= calls.end[call] + part_left)
    before = np.maximum(pieces.before[rows], 0)
    behind = here & ~done & (pieces.before[rows] >= 0)
    behind &= (pieces.end[before] > calls.start[call]) & (pieces.end[before] <= calls.end[call])
    both = np.concatenate((rows[done], before[behind]))
    return Blocks(np.concatenate((call[done], call[behind])), both, np.ones(len(both), bool))


def _blocking(direction: str) -> str:
    """Whether a copy of this direction may block its call: "out" to the host, "in" from it, "" never."""
    if "pinned" in direction or direction[:4] not in ("DtoH", "HtoD"):
        return ""
    return "out" if direction.startswith("DtoH pageable") else "in"


def _syncs(part: Part) -> Blocks:
    """Synchronising calls and the last work launched before them on each stream that they wait for."""
    calls = part.calls
    mine = np.array([causes.api_cause(api) == SYNC for api in calls.api], bool)
    # A copy that blocks is told apart by its own piece.
    mine[part.pieces.call[(part.pieces.call >= 0)]] = False
    rows = np.flatnonzero(mine & calls.team)
    if not len(rows) or not len(part.pieces.start):
        return _joined([])
    whole = np.array([api.endswith(WHOLE_DEVICE) for api in np.array(calls.api, object)[rows]], bool)
    last = _last_of_lines(part, rows)
    event = np.array(["Event" in calls.api[row] for row in rows.tolist()], bool)
    found = [_all(part, rows[whole], last[whole]), _one(part, rows[~whole], last[~whole], event[~whole])]
    return _joined(found)


def _last_of_lines(part: Part, rows: Array) -> Array:
    """By call and stream: the piece launched last before the call; -1 for none, or where it outlived it."""
    launched = Launched(part.pieces)
    last = np.column_stack([launched.before(line, part.calls.start[rows]) for line in launched.lines])
    outlived = part.pieces.end[np.maximum(last, 0)] > part.calls.end[rows][:, None]
    return np.where(outlived, -1, last)


def _all(part: Part, rows: Array, last: Array) -> Blocks:
    call, line = np.nonzero(last >= 0)
    piece = last[call, line]
    return Blocks(rows[call], piece, part.pieces.end[piece] > part.calls.start[rows[call]])


def _one(part: Part, rows: Array, last: Array, event: Array) -> Blocks:
    """The stream whose work ended last inside the call; if none did, the one last launched to."""
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
    lost = ~waited & (calls.length[rows] > 2 * LONG_NS)
    part.facts["synchronisations undetermined"] = float(lost.sum())
    known = (piece >= 0) & ~lost
    return Blocks(rows[known], piece[known], waited[known])


def _prompt(part: Part, rows: Array) -> Array:
    """The piece that ended last before each call returned: inside it, and launched before it."""
    pieces, calls = part.pieces, part.calls
    order = np.argsort(pieces.end, kind="stable")
    place = np.searchsorted(pieces.end[order], calls.end[rows], "right") - 1
    piece = order[np.maximum(place, 0)]
    inside = (
        (place >= 0) & (pieces.end[piece] > calls.start[rows]) & (pieces.launched[piece] < calls.start[rows])
    )
    return np.where(inside, piece, -1)


def _joined(found: list[Blocks]) -> Blocks:
    nothing = Blocks(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))
    return Blocks(*(np.concatenate(column) for column in zip(nothing, *found, strict=True)))


def _batches(part: Part, late: Array) -> None:
    """A batch that was late comes some time after the late one before it; the first, after it was asked."""
    if not len(late):
        return
    ends = part.calls.end[late]
    sources = np.append(part.begin[late[0]], part.done[late[:-1]])
    after = np.append(part.calls.length[late[0]], np.diff(ends))
    part.edges.add(Kind.LOADER, sources, part.done[late], after)
    part.facts["batches waited for"] = float(len(late))
