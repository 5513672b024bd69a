"""Compute the lengths of a replay's steps from its marks and device work, as arrays.

One report makes dozens of replays, and the lengths of windows need no ledger, host activity or tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.device import BEFORE_ALL
from fathom.analysis.intervals import Array
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.replayed import HostTimes, Maps, Times, separated
from fathom.analysis.windows import Boundary, tiles
from fathom.units import NS_PER_MS

if TYPE_CHECKING:
    from fathom.analysis.recording import Timeline


class Marks(msgspec.Struct, frozen=True):
    """A timeline's steps in the order of their rows; `complete` steps have an end and are no micro-steps."""

    marks: HostTimes
    ends: HostTimes  # 0 if the step has no end
    bursts: Array
    streams: list[int | None]
    complete: Array

    @classmethod
    def of(cls, steps: pl.DataFrame, parts: list[Part]) -> Marks:
        """Return the marks of the rows of the table `steps`."""
        marks, ends, bursts = (steps[name].fill_null(0).to_numpy() for name in ("mark_ns", "end_ns", "burst"))
        complete = (steps["parent"].is_null() & steps["end_ns"].is_not_null()).to_numpy()
        every = np.ones(len(marks), bool)
        return cls(
            HostTimes.of(marks, every, bursts, None, parts),
            HostTimes.of(ends, ends > 0, bursts, None, parts),
            bursts,
            steps["stream"].to_list(),
            complete,
        )


class LaunchTimes(msgspec.Struct, frozen=True):
    """One device's work, as rows of the rank's kernels; a replay changes its times. Empty for a processor."""

    start: Array
    end: Array
    arrived: Array  # -1 if the peers are unknown
    launched: HostTimes
    known: Array
    burst: Array
    stream: Array
    mine: Array  # rows of this device
    before: Array  # of `mine`: launched before the recording began
    usual: int | None

    @classmethod
    def of(
        cls, kernels: pl.DataFrame, device: int | None, usual: int | None, parts: list[Part]
    ) -> LaunchTimes:
        """Return the work of a device from a rank's kernels, joined with their launches."""
        met = "arrived_ns" in kernels.columns
        no_peers = np.full(kernels.height, -1)
        mine = np.flatnonzero((kernels["device"] == (-1 if device is None else device)).fill_null(False))
        start, end, burst = (kernels[name].to_numpy() for name in ("start_ns", "end_ns", "burst"))
        known = kernels["launched"].is_not_null().to_numpy()
        launched, by = (
            kernels["launched"].fill_null(0).to_numpy(),
            kernels["launcher"].fill_null(-1).to_numpy(),
        )
        return cls(
            start,
            end,
            kernels["arrived_ns"].fill_null(-1).to_numpy() if met else no_peers,
            HostTimes.of(launched, known, burst, by, parts),
            known,
            burst,
            kernels["stream"].fill_null(-1).to_numpy(),
            mine,
            _before(kernels["correlation"], known, burst, mine[end[mine] > start[mine]])[mine],
            usual,
        )

    def boundary(self, maps: Maps, times: Times) -> Boundary:
        """Return the ends of the work in a replay, which bound the windows."""
        start, end, arrived = times.pieces(self.start, self.end, self.arrived)
        launched = self.launched.moved(maps)
        start, end, arrived, launched, burst, stream, known = (
            column[self.mine]
            for column in (start, end, arrived, launched, self.burst, self.stream, self.known)
        )
        launched = np.where(self.before, BEFORE_ALL, np.where(known, launched, start))
        # A collective waits for its last peer, and then moves bytes.
        met = np.flatnonzero((arrived >= 0) & (end > start))
        rows = np.append(np.arange(len(start)), met)
        opens, closes = (
            np.append(start, arrived[met]),
            np.append(np.where(arrived >= 0, arrived, end), end[met]),
        )
        kept = np.flatnonzero(closes > opens)
        order = kept[np.lexsort((launched[rows[kept]], opens[kept]))]
        rows = rows[order]
        return Boundary(stream[rows], launched[rows], closes[order], burst[rows], self.usual, opens[order])


def _before(correlation: pl.Series, known: Array, burst: Array, rows: Array) -> Array:
    """Return a mask of the kernels in `rows` that were launched before the recording.

    Correlation IDs increase: these kernels have an ID below that of the first recorded call.
    """
    never, none = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    number = correlation.fill_null(never).to_numpy()
    before = np.zeros(len(number), bool)
    for each in set(burst[rows].tolist()):
        mine = rows[burst[rows] == each]
        first = min(number[mine[known[mine]]].tolist(), default=none)
        before[mine] = ~known[mine] & (number[mine] < first)
    return before


class StepLengths(msgspec.Struct, frozen=True):
    """Marks and launches of one device (None: the processor), which determine its step lengths."""

    marks: Marks
    launches: LaunchTimes

    @classmethod
    def of(cls, timeline: Timeline, device: int | None, usual: int | None, parts: list[Part]) -> StepLengths:
        """Return the marks and launches of the recording.

        `usual` is the stream with the most compute time. `parts` are those of the rank.
        """
        return cls(Marks.of(timeline.steps, parts), LaunchTimes.of(timeline.kernels, device, usual, parts))

    def lengths_ms(self, times: Times) -> Array:
        """Return the length of each window in a replay, in ms."""
        maps, marked = times.maps, self.marks
        known = marked.ends.times > 0
        marks, ends = separated(marked.marks.moved(maps), marked.ends.moved(maps), known)
        rows = np.flatnonzero(marked.complete & (ends > marks))
        rows = rows[np.argsort(marks[rows], kind="stable")]
        boundary = self.launches.boundary(maps, times)
        streams = [marked.streams[row] for row in rows.tolist()]
        opened, closed, _ = tiles(marks[rows], ends[rows], streams, marked.bursts[rows], boundary)
        return (closed - opened) / NS_PER_MS
