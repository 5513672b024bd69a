"""Add edges into the starts of device work: from its launch, its stream, and other streams."""

from __future__ import annotations

import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.intervals import Array
from fathom.analysis.replay.graph import EdgeKind, Edges
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.pieces import Launched, Pieces, typical, usual_mean, usual_median

LATENCY_NS = 5_000.0  # from a launch to its work, if this recording never shows it
GAP_NS = 1_000.0
# If nothing else explains a start, work that begins this soon after other work has waited for it; or within
# this share of the unexplained delay.
PROMPT_NS = 20_000
SMALL_PART = 0.02
DRAIN_NS = 10_000  # a kernel may begin this early, while the one that occupies its processors drains
STRANGE_NS = 10_000  # a start this much later than launch and stream explain has another cause


def start_edges(part: Part, waits: Array) -> None:
    """Add edges into all pieces' starts; `waits`: (start, thread) of calls that make streams wait."""
    if not len(part.pieces.start):
        return
    inputs = _Inputs(part)
    elsewhere = _elsewhere(part, inputs)
    _add_known_waits(part, elsewhere, waits)
    _join(part, inputs, elsewhere)


class _Inputs:
    """Slack of each piece after its launch and after its stream's previous piece, with typical values."""

    def __init__(self, part: Part) -> None:
        pieces, calls = part.pieces, part.calls
        self.launched, self.follows = (pieces.call >= 0) & ~pieces.inner, pieces.before >= 0
        call, before = np.maximum(pieces.call, 0), np.maximum(pieces.before, 0)
        start, end, own = (_padded(column)[call] for column in (calls.start, calls.end, calls.own))
        blocked = self.launched & _padded(calls.queued)[call]  # submitted when a slot became free
        self.call = np.where(blocked, -1, pieces.call)  # its own time is part of the slack
        self.source = np.where(blocked, _padded(part.done)[call], _padded(part.begin)[call])
        self.launch = (pieces.start - np.where(blocked, end, start)).astype(float)
        self.stream = (pieces.start - pieces.end[before]).astype(float)
        at_once = self.launched & ~blocked & (_reach(pieces) <= start)
        kinds, count = pieces.kind, len(pieces.kinds)
        latency = typical(self.launch[at_once], kinds[at_once], count, LATENCY_NS, usual_median)[kinds]
        self.latency = np.where(blocked, np.maximum(latency - own, 0.0), latency)
        in_turn = self.follows & ~(self.launched & (self.launch - self.stream < self.latency))
        # A kernel may start before the previous one is done; it then waits inside its own duration.
        between = np.maximum(self.stream[in_turn], 0.0)
        self.gap = typical(between, kinds[in_turn], count, GAP_NS, usual_mean)[kinds]

    def late(self) -> Array:
        """Return the delay in ns of pieces beyond what launch and stream explain; -1 if unknown."""
        by_launch = np.where(self.launched, self.launch - self.latency, np.inf)
        by_stream = np.where(self.follows, self.stream - self.gap, np.inf)
        late = np.minimum(by_launch, by_stream)
        return np.where(np.isfinite(late), late, -1.0)


def _reach(pieces: Pieces) -> Array:
    """Return for each piece the end of all work of its device that began before it."""
    reach = np.empty(len(pieces.end), np.int64)
    for device in distinct(pieces.device):
        mine = np.flatnonzero(pieces.device == device)
        ends = np.maximum.accumulate(pieces.end[mine])
        reach[mine] = np.append(np.iinfo(np.int64).min, ends[:-1])
    return reach


def _padded(column: Array) -> Array:
    return column if len(column) else np.zeros(1, column.dtype)


def _elsewhere(part: Part, inputs: _Inputs) -> Array:
    """Return for each piece the work on another stream of its device whose end explains its start, or -1.

    Only pieces later than launch and stream explain count: they waited for an event or an engine.
    """
    pieces = part.pieces
    source = np.full(len(pieces.start), -1)
    delay = inputs.late()
    late = np.flatnonzero(delay > STRANGE_NS)
    prompt = np.maximum(PROMPT_NS, SMALL_PART * delay[late])
    order = np.argsort(pieces.end, kind="stable")
    place = np.searchsorted(pieces.end[order], pieces.start[late] + DRAIN_NS, "right")
    for piece, until, soon in zip(late.tolist(), place.tolist(), prompt.tolist(), strict=True):
        source[piece] = _just_ended(part, order, piece, until, soon)
    left = int((source[late] < 0).sum())
    part.facts["late starts explained"] = float(len(late) - left)
    part.facts["late starts unexplained"] = float(left)
    return source


def _just_ended(part: Part, order: Array, piece: int, until: int, soon: float) -> int:
    """Return the piece of another stream that ended nearest to the start, up to DRAIN_NS after it; or -1."""
    pieces = part.pieces
    others = order[max(until - 16, 0) : until]
    here = (pieces.line[others] != pieces.line[piece]) & (pieces.device[others] == pieces.device[piece])
    here &= pieces.start[piece] - pieces.end[others] <= soon
    here &= (pieces.end[others] < pieces.end[piece]) & (pieces.start[others] < pieces.start[piece])
    near = others[here]
    return int(near[np.abs(pieces.start[piece] - pieces.end[near]).argmin()]) if len(near) else -1


def _add_known_waits(part: Part, elsewhere: Array, waits: Array) -> None:
    """Make the launch after a call that makes a stream wait depend on the other stream's last work.

    The work is undetermined if there are several other streams, or if its times contradict the wait.
    """
    pieces, calls = part.pieces, part.calls
    launched = Launched(pieces)
    first = np.flatnonzero((pieces.call >= 0) & ~pieces.inner)
    undetermined = 0
    for thread in distinct(waits[:, 1]) if len(launched.lines) > 1 else []:
        mine = first[calls.thread[pieces.call[first]] == thread]
        mine = mine[np.argsort(pieces.launched[mine], kind="stable")]
        begins = waits[waits[:, 1] == thread, 0]
        place = np.searchsorted(pieces.launched[mine], begins, "left")
        # Of several waits before a launch, the last one knows most work.
        for instant, at in zip(begins[::-1].tolist(), place[::-1].tolist(), strict=True):
            if at < len(mine) and elsewhere[mine[at]] < 0:
                source = _awaited(part, launched, int(mine[at]), instant)
                undetermined += source < 0
                elsewhere[mine[at]] = source
    part.facts["event waits undetermined"] = float(undetermined)


def _awaited(part: Part, launched: Launched, piece: int, instant: int) -> int:
    pieces = part.pieces
    others = [line for line in launched.lines if line != pieces.line[piece]]
    last = [int(launched.before(line, np.array([instant]))[0]) for line in others]
    possible = [p for p in last if p >= 0 and pieces.device[p] == pieces.device[piece]]
    if len(possible) != 1 or pieces.end[possible[0]] > pieces.start[piece]:
        return -1
    return possible[0]


def _join(part: Part, inputs: _Inputs, elsewhere: Array) -> None:
    """Add the edges: the binding one keeps its recorded slack, the others have at most the typical slack."""
    pieces, crossing = part.pieces, elsewhere >= 0
    across = (pieces.start - pieces.end[np.maximum(elsewhere, 0)]).astype(float)
    in_force = crossing & (across <= PROMPT_NS) & (across < inputs.late())
    crossed = usual_median(across[in_force], GAP_NS)
    follows = inputs.follows & ~_entering(pieces)
    columns = (
        (EdgeKind.LAUNCH, inputs.launched, inputs.source, inputs.launch, inputs.latency, inputs.call),
        (EdgeKind.STREAM, follows, _ends(part, pieces.before), inputs.stream, inputs.gap, pieces.before),
        (EdgeKind.EVENT, crossing, _ends(part, elsewhere), across, np.full(len(across), crossed), elsewhere),
    )
    excess = np.column_stack(
        [np.where(exists, slack - usual, np.inf) for _, exists, _, slack, usual, _ in columns]
    )
    binding = excess.argmin(1)
    recorded = (pieces.call < 0) | (pieces.inner & ~crossing)  # only the recording gives their start
    for place, (kind, exists, source, slack, usual, other) in enumerate(columns):
        kept = np.where((binding == place) | recorded, slack, np.minimum(slack, usual))
        rows = np.flatnonzero(exists)
        always = np.where(recorded, slack, usual)
        _into(part, kind, source[rows], rows, kept[rows], always[rows], other[rows])
    _add_rest(part, np.flatnonzero(~inputs.launched & ~follows & ~crossing))


def _entering(pieces: Pieces) -> Array:
    """Return a mask of the nodes of a CUDA graph that follow other work on their stream."""
    return pieces.inner & (pieces.call[np.maximum(pieces.before, 0)] != pieces.call)


def _add_rest(part: Part, rows: Array) -> None:
    """Place graph nodes relative to their launch, and work without known predecessors to the start."""
    pieces = part.pieces
    inner = pieces.inner[rows]
    nodes, lost = rows[inner], rows[~inner]
    after = pieces.start[nodes] - part.calls.start[pieces.call[nodes]]
    _into(part, EdgeKind.LAUNCH, part.begin[pieces.call[nodes]], nodes, after, None, pieces.call[nodes])
    _into(part, EdgeKind.FIXED, np.full(len(lost), part.origin), lost, pieces.start[lost] - part.zero)


def _ends(part: Part, index: Array) -> Array:
    return part.ends[np.maximum(index, 0)]


def _into(
    part: Part,
    kind: EdgeKind,
    source: Array,
    rows: Array,
    kept: Array,
    usual: Array | None = None,
    other: Array | int = -1,
) -> None:
    """Add edges into pieces: at the start of collectives with known peers, else at the end."""
    edges: Edges = part.edges
    piece = np.where(part.pieces.met[rows], -1, rows)
    edges.add(kind, source, part.starts[rows], kept, usual, piece, other)
