"""Hand-made timelines for the ledger's tests: what ran when, in nanoseconds, as a sounding."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from fathom.analysis import accounts_of, meetings
from fathom.analysis.results import Device, Examination
from fathom.diagnosis import examine
from fathom.sounding import TABLES, Manifest, Rank, Store, Writer

MAIN, ENGINE, OTHER = 100, 200, 300  # threads; MAIN is also the process id
DEFAULT_STREAM = 7


@dataclass
class Timeline:
    """Collects rows; every method returns nothing and takes times as `start, end`."""

    rank: int = 0
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    phase: str = "timeline"
    burst: int = 0
    abstained: list[dict[str, str]] = field(default_factory=list)
    devices: dict[int, str] = field(default_factory=lambda: {0: "Test GPU"})

    def add(self, table: str, **row: Any) -> None:
        recorded = {"phase": self.phase, "burst": self.burst}
        known = {name: value for name, value in {**recorded, **row}.items() if name in TABLES[table]}
        self.tables.setdefault(table, []).append(known)

    def step(self, start: int, end: int, kind: str = "train", **more: Any) -> None:
        number = len(self.tables.get("steps", []))
        row = {"step": number, "kind": kind, "source": "mark", "thread": MAIN, "stream": DEFAULT_STREAM}
        self.add("steps", **{**row, "mark_ns": start, "end_ns": end, **more})

    def steps(self, *marks: int, **more: Any) -> None:
        for start, end in pairwise(marks):
            self.step(start, end, **more)

    def op(
        self,
        name: str,
        start: int,
        end: int,
        thread: int = MAIN,
        kind: str = "op",
        parent: int | None = None,
    ) -> int:
        number = len(self.tables.get("ops", []))
        times = {"start_ns": start, "end_ns": end}
        self.add("ops", id=number, parent=parent, name=name, thread=thread, kind=kind, **times)
        return number

    def call(
        self, api: str, start: int, end: int, thread: int = MAIN, correlation: int | None = None
    ) -> None:
        self.add("launches", api=api, thread=thread, correlation=correlation, start_ns=start, end_ns=end)

    def kernel(
        self,
        start: int,
        end: int,
        launched: int | None,
        *,
        name: str = "gemm",
        kind: str = "compute",
        stream: int = DEFAULT_STREAM,
        device: int = 0,
        thread: int = MAIN,
        correlation: int | None = None,
        **more: Any,
    ) -> int:
        """A piece of device work and, unless `launched` is None, the call of 1 ns that launched it."""
        number = correlation or 1 + len(self.tables.get("kernels", []))
        row = {"device": device, "stream": stream, "correlation": number, "kind": kind, "name": name}
        self.add("kernels", **{**row, "family": name, "start_ns": start, "end_ns": end, **more})
        if launched is not None:
            self.call("cudaLaunchKernel", launched, launched + 1, thread, number)
        return number

    def wait(self, cause: str, start: int, end: int, thread: int = MAIN, detail: str = "") -> None:
        self.add("waits", cause=cause, thread=thread, start_ns=start, end_ns=end, detail=detail)

    def frames(self) -> dict[str, pl.DataFrame]:
        return {
            name: pl.DataFrame(rows, schema=TABLES[name], orient="row") for name, rows in self.tables.items()
        }


def store_of(path: Path, *timelines: Timeline, **manifest: Any) -> Store:
    """A sounding with one rank a timeline."""
    writer = Writer(path)
    for timeline in timelines:
        for name, frame in timeline.frames().items():
            writer.write(timeline.rank, name, frame)
    ranks = [Rank(timeline.rank, pid=MAIN, devices=timeline.devices) for timeline in timelines]
    return writer.finish(Manifest(name="hand-made", ranks=ranks, **manifest))


def examination_of(path: Path, *timelines: Timeline, **manifest: Any) -> Examination:
    """The examination of such a sounding; its ledgers are checked to sum."""
    examination = examine(store_of(path, *timelines, **manifest))
    _check_sums(examination.devices)
    for device in examination.devices:
        if (
            device.ledger
            and examination.step.clean_ms is not None
            and device.rank == examination.devices[0].rank
        ):
            assert sum(entry.ns for entry in device.ledger) == round(examination.step.clean_ms * 1e6)
        elif device.observer_ms is None:
            assert device.ledger == device.profiled_ledger
    return examination


def devices_of(path: Path, *timelines: Timeline) -> list[Device]:
    """The devices of such a sounding, in half the time; their ledgers are checked to sum."""
    store = store_of(path, *timelines).cached()
    accounts = accounts_of(store, store.machine, meetings(store).of)
    devices = [device for account in accounts for device in account.devices]
    _check_sums(devices)
    return devices


def _check_sums(devices: list[Device]) -> None:
    for device in devices:
        used = sum(window.end_ns - window.start_ns for window in device.windows if window.used)
        assert sum(entry.ns for entry in device.profiled_ledger) == used
        assert all(entry.ns > 0 for entry in device.profiled_ledger)


def nanoseconds(device: Device) -> dict[str, int]:
    """LedgerRow to nanoseconds over the used windows; details are summed."""
    result: dict[str, int] = {}
    for entry in device.profiled_ledger:
        result[entry.entry] = result.get(entry.entry, 0) + entry.ns
    return result
