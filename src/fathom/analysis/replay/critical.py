"""The critical path: the chain of work, over ranks and streams, that determines the length of the steps."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fathom.analysis.entries import Entry
from fathom.analysis.intervals import Array
from fathom.analysis.replay.graph import EdgeKind, Graph
from fathom.analysis.replay.model import Model, Replayed
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.recorded import ReplayedDevice
from fathom.analysis.results import CriticalPart
from fathom.units import NS_PER_MS

HOST = "host"
TIED_NS = 5_000.0  # an instant follows from either of two edges that differ by less
_BEFORE = {  # causes of the time before the device work at the end of an edge
    EdgeKind.LAUNCH: Entry.LAUNCH_LATENCY.cause,
    EdgeKind.STREAM: Entry.DEVICE_GAP.cause,
    EdgeKind.EVENT: Entry.DEVICE_GAP.cause,
    EdgeKind.SYNC: Entry.SYNCHRONISATION.cause,
    EdgeKind.QUEUE: Entry.SYNCHRONISATION.cause,
    EdgeKind.LOADER: Entry.INPUT.cause,
}
_WORK = {"compute": "compute", "collective": "communication", "copy": "copy", "set": "copy"}


class Segment(msgspec.Struct, frozen=True):
    """Time on the path: `stream` is None on the host; `detail` is the kernel family."""

    rank: int
    stream: int | None
    entry: str
    detail: str
    start: float
    end: float


class Path:
    """Walk back from an instant along the edge that determined each time."""

    def __init__(self, model: Model) -> None:
        replay: Replayed = model.times()
        self.parts, self.graph, self.at = model.parts, model.graph, replay.at
        self.pieces = [durations.piece for durations in replay.durations]
        self.owner = model.owner
        self.binding = _binding(self.graph, replay.weights, self.at)
        self.streams = {
            part.rank: model.timelines[part.rank].kernels["stream"].to_list() for part in self.parts
        }

    def back(self, instant: int, until: float) -> Iterator[Segment]:
        """Yield the segments from `instant` back to the time `until`, the last one first."""
        while self.at[instant] > until and (edge := int(self.binding[instant])) >= 0:
            yield from self._segments(edge, until)
            instant = int(self.graph.edges.source[edge])

    def _segments(self, edge: int, until: float) -> Iterator[Segment]:
        edges, part = self.graph.edges, self.parts[self.owner[edge]]
        begin, end = self.at[edges.source[edge]], self.at[edges.target[edge]]
        piece, middle = int(edges.piece[edge]), end
        if piece >= 0:
            middle = max(end - self.pieces[self.owner[edge]][piece], begin)
            yield self._device(part, piece, max(middle, until), end)
        entry = _BEFORE.get(EdgeKind(int(edges.kind[edge]))) or self._of_host(part, edge)
        if middle > max(begin, until):
            yield Segment(part.rank, None, entry, "", max(begin, until), middle)

    def _device(self, part: Part, piece: int, start: float, end: float) -> Segment:
        own = part.pieces
        entry = _WORK.get(own.kinds[own.kind[piece]], HOST)
        stream = self.streams[part.rank][part.rows[piece]]
        return Segment(part.rank, stream, entry, own.families[own.family[piece]], start, end)

    def _of_host(self, part: Part, edge: int) -> str:
        """Return the cause of most of the host's time on an edge."""
        edges, knots = self.graph.edges, part.team.knots
        times = self.graph.recorded[[edges.source[edge], edges.target[edge]]] + self.graph.epoch
        low, high = np.searchsorted(knots, times)
        lengths = part.team.lengths[low:high]
        spent = {cause: float(lengths[mask[low:high]].sum()) for cause, mask in part.team.masks.items()}
        cause = max(spent, key=lambda name: spent[name], default="")
        return cause if spent.get(cause) else HOST


def _binding(graph: Graph, weights: Array, at: Array) -> Array:
    """Return the edge that determined the time of each instant; -1 for roots.

    If several did, it is the one with the least time between its ends: the work that ended last.
    """
    edges, chosen = graph.edges, np.full(len(at), -1)
    tied = np.flatnonzero(at[edges.source] + weights >= at[edges.target] - TIED_NS)
    order = tied[np.argsort(at[edges.source[tied]], kind="stable")]
    chosen[edges.target[order]] = order
    return chosen


def critical_path(model: Model, device: ReplayedDevice) -> list[CriticalPart]:
    """Return the parts of the path that ends with each used step of `device`, longest first.

    They sum to the step. [] if the arrivals of ranks at collectives are unknown.
    """
    if device.index is None or not any(part.pieces.met.any() for part in model.parts):
        return []
    path, windows = Path(model), device.windows_in(model.timelines[device.rank])
    own = {part.burst: part for part in model.parts if part.rank == device.rank}
    bounds = np.column_stack((windows.starts, windows.ends)) - path.graph.epoch
    segments = [
        segment
        for (begin, end), burst in zip(bounds[windows.used], windows.bursts[windows.used], strict=True)
        for segment in _within(path, own[int(burst)], device.rank, float(begin), float(end))
    ]
    return sorted(_summed(segments, windows.total_ns, int(windows.used.sum())), key=lambda row: -row.ms)


def _within(path: Path, part: Part, rank: int, begin: float, end: float) -> list[Segment]:
    """Return the segments of one window; time before the first or after the last one is unexplained."""
    ends = part.ends[path.at[part.ends] <= end]
    last = int(ends[path.at[ends].argmax()]) if len(ends) else 0
    segments = list(path.back(last, begin)) if len(ends) else []
    known = sum(segment.end - segment.start for segment in segments)
    if end - begin - known > 1.0:
        segments.append(Segment(rank, None, Entry.UNEXPLAINED.cause, "", begin, end - known))
    return segments


def _summed(segments: list[Segment], total_ns: int, steps: int) -> Iterator[CriticalPart]:
    """Yield the parts by rank, stream and entry."""
    sums: dict[tuple[int, int | None, str], dict[str, float]] = {}
    for row in segments:
        work = sums.setdefault((row.rank, row.stream, row.entry), {})
        work[row.detail] = work.get(row.detail, 0.0) + float(row.end - row.start)
    for key, work in sums.items():
        ns = sum(work.values())
        yield CriticalPart(
            *key, max(work, key=lambda name: work[name]), ns / steps / NS_PER_MS, ns / total_ns
        )
