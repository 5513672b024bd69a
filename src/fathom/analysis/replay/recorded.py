"""The device whose steps are replayed, with its windows, ledger and clean step."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.account import Account
from fathom.analysis.device import device_work
from fathom.analysis.intervals import Array
from fathom.analysis.ledger import Ledger, device_ledger
from fathom.analysis.processor import processor_ledger
from fathom.analysis.recording import Timeline
from fathom.analysis.replay.lengths import StepLengths
from fathom.analysis.replay.replayed import Times
from fathom.analysis.steps import Clean, clean_step, first_profiled, ran_ahead, stretches, undisturbed
from fathom.analysis.windows import Boundary, Windows, make_windows
from fathom.units import NS_PER_MS


class ReplayedDevice(msgspec.Struct):
    """One device (None: the processor) of a rank; its recorded `windows` select the used steps."""

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
        """Return the lengths of the used windows in a replay of the recorded `timeline`, in ms."""
        if self.lengths is None:
            parts = [part for part, _ in times.parts]
            self.lengths = StepLengths.of(timeline, self.index, self.usual, parts)
        return self.lengths.lengths_ms(times)[self.used]

    def ledger(self, timeline: Timeline) -> Ledger:
        """Return the ledger of a recorded or replayed timeline."""
        windows = self._windows(timeline)
        host = timeline.host(windows.bursts)
        if self.index is None:
            return processor_ledger(timeline.ops, windows, host)
        work = device_work(timeline.kernels.filter(pl.col("device") == self.index))
        return device_ledger(work, windows, host)

    def by_entry(self, ledger: Ledger) -> dict[str, float]:
        """Return the ms per step by entry."""
        used = np.flatnonzero(self.used).tolist()
        rows = ledger.rows.filter(pl.col("window").is_in(used))
        summed = rows.group_by("entry").agg(pl.col("ns").sum())
        return {entry: ns / len(used) / NS_PER_MS for entry, ns in summed.iter_rows()}

    def _windows(self, timeline: Timeline) -> Windows:
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
    """Return the windows of one device (None: the processor); those of `kind` are used.

    By default, the kind with the most time is used. `usual` is the stream with the most compute time, if
    known.
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
