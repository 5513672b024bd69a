"""The device whose steps are replayed, with its windows, ledger and clean step, and its steps' lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.account import Account
from fathom.analysis.columns import filled
from fathom.analysis.device import BEFORE_ALL, device_work
from fathom.analysis.intervals import Array
from fathom.analysis.ledger import Ledger, device_ledger
from fathom.analysis.processor import processor_ledger
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.replayed import HostTimes, Maps, Times, separated
from fathom.analysis.steps import Clean, clean_step, first_profiled, ran_ahead, stretches, undisturbed
from fathom.analysis.windows import Boundary, Windows, make_windows, tiles
from fathom.units import NS_PER_MS

if TYPE_CHECKING:
    from fathom.analysis.recording import Timeline


class ReplayedDevice(msgspec.Struct):
    """One device (None for the processor) of a rank; its recorded `windows` select the used steps."""

    rank: int
    index: int | None
    windows: Windows
    kind: str | None = None  # kind of the steps; None: the kind with the most time
    usual: int | None = None  # the stream with the most compute time
    recorded: Ledger | None = None
    lengths: StepLengths | None = None

    @property
    def used(self) -> Array:
        """Mask of the windows that enter the means."""
        return self.windows.used

    def steps_ms(self, timeline: Timeline, times: Times) -> Array:
        """Return the lengths of the used windows in a replay of the recorded `timeline`, in ms.

        Zeros if the recorded steps are equal or overlap, so that the replay has other windows; then its
        error is too large for any prediction.
        """
        if self.lengths is None:
            parts = [part for part, _ in times.parts]
            self.lengths = StepLengths.of(timeline, self.index, self.usual, parts)
        lengths = self.lengths.lengths_ms(times)
        return lengths[self.used] if len(lengths) == len(self.used) else np.zeros(self.used.sum())

    def ledger(self, timeline: Timeline) -> Ledger:
        """Return the ledger of a recorded or replayed timeline."""
        windows = self.windows_in(timeline)
        host = timeline.host(windows.bursts)
        if self.index is None:
            return processor_ledger(timeline.ops, windows, host, timeline.collectives)
        work = device_work(timeline.kernels.filter(pl.col("device") == self.index))
        return device_ledger(work, windows, host)

    def by_entry(self, ledger: Ledger) -> dict[str, float]:
        """Return the milliseconds per step by entry."""
        used = np.flatnonzero(self.used).tolist()
        rows = ledger.rows.filter(pl.col("window").is_in(used))
        summed = rows.group_by("entry").agg(pl.col("ns").sum())
        return {entry: ns / len(used) / NS_PER_MS for entry, ns in summed.iter_rows()}

    def windows_in(self, timeline: Timeline) -> Windows:
        """Return the windows of a recorded or replayed timeline; the same ones are used."""
        windows = windows_of(timeline, self.index, self.kind, self.usual)
        windows.used = self.used
        return windows


def replayed_device(account: Account) -> ReplayedDevice | None:
    """Return an account's first device with used windows; None if there is none."""
    for subject in account.subjects:
        windows = subject.ledger.windows
        if windows.used.any():
            return ReplayedDevice(
                account.rank, subject.index, windows, windows.wanted, subject.usual, subject.ledger
            )
    return None


def first_device(timeline: Timeline, kind: str | None = None) -> ReplayedDevice | None:
    """Return a rank's first device with used windows, or its processor; None if there is none.

    The steps are of `kind`, or by default of the kind with the most time.
    """
    if timeline.steps.is_empty():
        return None
    devices: list[int | None] = [*timeline.devices] or [None]
    every = [_device(timeline, index, kind) for index in devices]
    return next((device for device in every if device.used.any()), None)


def _device(timeline: Timeline, index: int | None, kind: str | None) -> ReplayedDevice:
    own = None if index is None else device_work(timeline.kernels.filter(pl.col("device") == index))
    usual = None if own is None else own.usual_stream
    return ReplayedDevice(timeline.about.rank, index, windows_of(timeline, index, kind, usual), kind, usual)


def windows_of(
    timeline: Timeline, device: int | None, kind: str | None = None, usual: int | None = None
) -> Windows:
    """Return the windows of one device (None for the processor); those of `kind` are used.

    The default kind has the most time. `usual` is the stream with the most compute time, if known.
    """
    own = None if device is None else timeline.kernels.filter(pl.col("device") == device)
    work = None if own is None else device_work(own, usual)
    return make_windows(timeline.steps, Boundary.of(work), kind, timeline.holes)


def clean_of(steps: pl.DataFrame, kind: str, busy_ms: float) -> Clean | None:
    """Return the clean step of `kind`; the rank's device works `busy_ms` per step.

    None if there are no clean steps, or if the host ran ahead of the device.
    """
    clean, _ = undisturbed(stretches(steps, kind), first_profiled(steps))
    return None if ran_ahead(clean, busy_ms) else clean_step(clean)


class Marks(msgspec.Struct, frozen=True):
    """A timeline's steps in the order of their rows; `complete` steps have an end and are not micro-steps."""

    marks: HostTimes
    ends: HostTimes  # 0 if the step has no end
    bursts: Array
    streams: list[int | None]
    complete: Array

    @classmethod
    def of(cls, steps: pl.DataFrame, parts: list[Part]) -> Marks:
        """Return the marks of the rows of the table `steps`."""
        marks, ends, bursts = (filled(steps[name], 0).to_numpy() for name in ("mark_ns", "end_ns", "burst"))
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
            filled(kernels["launched"], 0).to_numpy(),
            filled(kernels["launcher"], -1).to_numpy(),
        )
        return cls(
            start,
            end,
            filled(kernels["arrived_ns"], -1).to_numpy() if met else no_peers,
            HostTimes.of(launched, known, burst, by, parts),
            known,
            burst,
            filled(kernels["stream"], -1).to_numpy(),
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
    """Marks and launches of one device (None for the processor), which determine its step lengths."""

    marks: Marks
    launches: LaunchTimes

    @classmethod
    def of(cls, timeline: Timeline, device: int | None, usual: int | None, parts: list[Part]) -> StepLengths:
        """Return marks and launches of the recording; `usual`: the busiest stream, `parts`: the rank's."""
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
