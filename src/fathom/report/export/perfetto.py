"""A trace for Perfetto's viewer: steps, ops, calls, device work, counters, ledger and findings as tracks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from fathom.analysis.results import Device, label_of
from fathom.errors import BadInputError
from fathom.report.export.exported import Exported, written
from fathom.units import NS_PER_MS

EXTRA = "Export to Perfetto needs the package perfetto: pip install 'fathom-perf[perfetto]'."
_SEQUENCE = 1  # all packets are of one writer
_HOST = 0  # parent of tracks of the whole recording
_TELEMETRY = {
    "power_w": "power (W)", "sm_clock_mhz": "SM clock (MHz)", "memory_clock_mhz": "memory clock (MHz)",
    "temperature_c": "temperature (°C)", "busy_percent": "utilisation (%)", "memory_bytes": "memory (bytes)",
}  # fmt: skip
_ARGUMENTS = (
    "family",
    "grid",
    "block",
    "registers",
    "bytes",
    "direction",
    "correlation",
    "shapes",
    "module",
    "source",
)
Row = dict[str, Any]


def save_perfetto(content: Exported, entries: pl.DataFrame, path: Path) -> None:
    """Write a Perfetto trace; `entries`: the ledger of every window. Raises BadInputError if it cannot."""
    try:
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    except ImportError:
        raise BadInputError(EXTRA) from None
    with written(path) as part, part.open("wb") as file:
        _Trace(StreamingTraceProtoBuilder(file)).add(content, entries)


class _Trace:
    """Packets of one trace."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._last = 0  # uuid of the last track
        self._examined: list[Device] = []

    def add(self, content: Exported, entries: pl.DataFrame) -> None:
        """Write all tracks."""
        self._examined = content.examination.devices
        self._findings(content)
        for rank in content.store.manifest.ranks:
            parent = self._track(f"rank {rank.rank}" + (f" (process {rank.pid})" if rank.pid else ""), _HOST)
            tables = {name: content.store.table(name, rank.rank) for name in _TABLES}
            self._rank(tables, parent)
            self._devices(tables, parent, entries.filter(rank=rank.rank), rank.facts.get("counter_groups"))

    def _findings(self, content: Exported) -> None:
        """Write one track per finding: a slice over the recording with evidence, gain and remedy."""
        start, end = content.span
        findings = content.examination.findings
        parent = self._track("findings", _HOST) if findings else _HOST
        for finding in findings:
            evidence = {e.text: f"{e.value:g} {e.unit}" for e in finding.evidence}
            facts = {"kind": finding.id, "gain_ms": finding.gain_ms, "low_ms": finding.low_ms,
                     "high_ms": finding.high_ms, **evidence, "mechanism": finding.mechanism,
                     "remedy": finding.remedy, "check": finding.check}  # fmt: skip
            row = {"name": finding.title, "start_ns": start, "end_ns": end, **facts}
            self._slices(finding.title, parent, [row], tuple(facts))

    def _rank(self, tables: dict[str, pl.LazyFrame], parent: int) -> None:
        steps = tables["steps"].filter(pl.col("end_ns").is_not_null()).collect()
        named = steps.select(
            name=pl.format("{} {}", pl.col("kind"), "step"), start_ns="mark_ns", end_ns="end_ns"
        )
        self._slices("steps", parent, named.iter_rows(named=True))
        calls = tables["launches"].select("thread", "start_ns", "end_ns", "correlation", name="api")
        ops = tables["ops"].select("thread", "start_ns", "end_ns", "name", "shapes", "module", "source")
        host = pl.concat([ops, calls], how="diagonal").collect()
        for (thread,), part in host.group_by("thread", maintain_order=True):
            self._slices(f"thread {thread}", parent, _ordered(part))

    def _devices(
        self,
        tables: dict[str, pl.LazyFrame],
        parent: int,
        entries: pl.DataFrame,
        groups: list[list[str]] | None,
    ) -> None:
        work, samples = tables["kernels"].collect(), tables["samples"].collect()
        telemetry, memory = tables["telemetry"].collect(), tables["memory"].collect()
        every = (frame["device"].drop_nulls() for frame in (work, samples, telemetry, memory))
        for device in sorted({*pl.concat([column.cast(pl.Int64) for column in every])}):
            own = self._track("host" if device < 0 else label_of(self._examined, device), parent)
            for (stream,), part in work.filter(device=device).group_by("stream", maintain_order=True):
                self._slices(f"stream {stream}", own, _ordered(part))
            self._samples(samples.filter(device=device), groups or [], own)
            self._telemetry(telemetry.filter(device=device), own)
            for name in ("allocated", "reserved"):
                points = memory.filter(device=device).select("time_ns", name).drop_nulls().sort("time_ns")
                self._counter(f"memory {name} (bytes)", own, points.iter_rows())
            self._ledger(entries.filter(device=f"cuda:{device}"), own)
        self._ledger(entries.filter(device="cpu"), parent)

    def _ledger(self, entries: pl.DataFrame, parent: int) -> None:
        """Write a counter per entry: its milliseconds in each window, and zero after the last."""
        if entries.is_empty():
            return
        windows = entries.select("start_ns", "end_ns").unique().sort("start_ns")
        for (entry,), part in entries.group_by("entry", maintain_order=True):
            spent = part.group_by("start_ns").agg(pl.col("ns").sum())
            rows = windows.join(spent, on="start_ns", how="left", maintain_order="left")
            points = rows.select("start_ns", ms=pl.col("ns").fill_null(0) / NS_PER_MS).rows()
            self._counter(f"ledger: {entry} (ms per step)", parent, [*points, (windows["end_ns"][-1], 0.0)])

    def _samples(self, samples: pl.DataFrame, groups: list[list[str]], parent: int) -> None:
        for (group,), part in samples.group_by("group", maintain_order=True):
            names = groups[group] if 0 <= group < len(groups) else []
            for place, name in enumerate(names):
                value = pl.col("values").list.get(place, null_on_oob=True).alias("value")
                points = part.sort("start_ns").select("start_ns", value).drop_nans().drop_nulls()
                self._counter(name, parent, points.iter_rows())

    def _telemetry(self, telemetry: pl.DataFrame, parent: int) -> None:
        for column, name in _TELEMETRY.items():
            points = telemetry.select("time_ns", column).drop_nulls().sort("time_ns")
            self._counter(name, parent, points.iter_rows())

    def _track(self, name: str, parent: int, counter: bool = False) -> int:
        packet = self._packet()
        self._last += 1
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.name = self._last, name
        if parent:
            descriptor.parent_uuid = parent
        if counter:
            descriptor.counter.SetInParent()
        self._builder.write_packet(packet)
        return self._last

    def _counter(self, name: str, parent: int, points: Iterable[tuple[int, float]]) -> None:
        track = 0
        for time, value in points:
            track = track or self._track(name, parent, counter=True)
            event = (packet := self._packet(time)).track_event
            event.type, event.track_uuid, event.double_counter_value = event.TYPE_COUNTER, track, value
            self._builder.write_packet(packet)

    def _slices(
        self, name: str, parent: int, rows: Iterable[Row], arguments: tuple[str, ...] = _ARGUMENTS
    ) -> None:
        """Write slices, ordered by start and the longer first; crossing ones get separate tracks."""
        lanes: list[tuple[int, list[int]]] = []  # track, and the ends of its open slices
        for row in rows:
            track, ends = self._lane(lanes, row, name, parent)
            self._begin(track, row, arguments)
            ends.append(row["end_ns"])
        for track, ends in lanes:
            self._close(track, ends, None)

    def _lane(
        self, lanes: list[tuple[int, list[int]]], row: Row, name: str, parent: int
    ) -> tuple[int, list[int]]:
        """Return the first lane in which the slice nests."""
        for track, ends in lanes:
            self._close(track, ends, row["start_ns"])
            if not ends or ends[-1] >= row["end_ns"]:
                return track, ends
        lanes.append((self._track(name, parent), []))
        return lanes[-1]

    def _close(self, track: int, ends: list[int], until: int | None) -> None:
        while ends and (until is None or ends[-1] <= until):
            event = (packet := self._packet(ends.pop())).track_event
            event.type, event.track_uuid = event.TYPE_SLICE_END, track
            self._builder.write_packet(packet)

    def _begin(self, track: int, row: Row, arguments: tuple[str, ...]) -> None:
        event = (packet := self._packet(row["start_ns"])).track_event
        event.type, event.track_uuid, event.name = event.TYPE_SLICE_BEGIN, track, row["name"]
        for name in arguments:
            if (value := row.get(name)) is not None:
                note = event.debug_annotations.add()
                note.name = name
                if isinstance(value, str):
                    note.string_value = value
                elif isinstance(value, float):
                    note.double_value = value
                else:
                    note.int_value = value
        self._builder.write_packet(packet)

    def _packet(self, time: int | None = None) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if time is not None:
            packet.timestamp = max(time, 0)
        return packet


_TABLES = ("steps", "ops", "launches", "kernels", "samples", "telemetry", "memory")


def _ordered(rows: pl.DataFrame) -> Iterator[Row]:
    """Yield rows by start, the longer first."""
    return rows.sort("start_ns", pl.col("start_ns") - pl.col("end_ns"), maintain_order=True).iter_rows(
        named=True
    )
