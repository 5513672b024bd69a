"""Build the tables `waits`, `usage`, `input`, `memory` and `telemetry` from the records of a rank."""

from __future__ import annotations

from typing import Any

import polars as pl

from fathom.sounding.raw.folder import Process, Raw, Record
from fathom.sounding.schema import TABLES

_ACTIONS = {"free_completed": "free"}
_STAGES = ("fetch", "read", "decode", "collate", "pin", "cpu_wait")
_COUNTS = ("read_bytes", "threads")


def waits(process: Process, marked: pl.DataFrame) -> pl.DataFrame:
    """Return the `waits` table: recorded waits, and every wait for a loader's batch."""
    rows = [
        _stretch(record, record.get("end"), cause=record.get("cause"), detail=record.get("detail"))
        for record in process.of("wait")
    ]
    for batch in process.of("batch"):
        if batch.get("wait") is not None and batch.get("start") is not None:
            end, loader = batch["start"] + batch["wait"], f"loader {batch.get('loader')}"
            rows.append(_stretch(batch, end, cause="input", detail=loader))
    schema = {name: TABLES["waits"][name] for name in ("thread", "cause", "start_ns", "end_ns", "detail")}
    return in_phases(pl.DataFrame(rows, schema=schema, strict=False), "start_ns", marked)


def _stretch(record: Record, end_ns: int | None, **more: Any) -> Record:
    return {"thread": record.get("thread"), "start_ns": record.get("start"), "end_ns": end_ns, **more}


def regions(process: Process, marked: pl.DataFrame) -> pl.DataFrame:
    """Return the recorded regions of the program as rows of `ops`; regions in traces are not among them."""
    rows = [_stretch(record, record["end"], name=record["name"]) for record in process.of("region")]
    names = ("thread", "name", "start_ns", "end_ns")
    frame = pl.DataFrame(rows, schema={name: TABLES["ops"][name] for name in names}, strict=False)
    ids = -1 - pl.int_range(pl.len(), dtype=pl.Int64)  # ids in traces count up from 0
    return in_phases(frame.with_columns(kind=pl.lit("annotation"), id=ids), "start_ns", marked)


def usage(process: Process, marked: pl.DataFrame) -> pl.DataFrame:
    """Return the `usage` table: what the thread that runs the steps used, by stretch of clean steps."""
    rows = [
        {
            **{name: record.get(name) for name in ("thread", "steps", "faults", "loads", "preempted")},
            **{
                f"{name}_ns": record.get(name)
                for name in ("start", "end", "user", "system", "ready", "fault")
            },
            "resident_bytes": record.get("resident"),
        }
        for record in process.of("usage")
    ]
    schema = {name: kind for name, kind in TABLES["usage"].items() if name not in ("phase", "burst")}
    return in_phases(pl.DataFrame(rows, schema=schema, strict=False), "start_ns", marked)


def batches(process: Process, others: list[Process], marked: pl.DataFrame) -> pl.DataFrame:
    """Return the `input` table: the batches that the program received, with the records of their workers."""
    made: dict[tuple[Any, Any, Any], Record] = {
        (worker.pid, record.get("epoch"), record.get("nth")): record
        for worker in others
        for record in worker.of("batch")
        if record.get("worker") is not None
    }
    rows = []
    for record in process.of("batch"):
        if record.get("wait") is None:
            continue
        worker_record = made.get((record.get("pid"), record.get("epoch"), record.get("nth")), {})
        stages = worker_record | {name: value for name, value in record.items() if value is not None}
        about = {name: record.get(name) for name in ("loader", "batch", "worker")}
        times = {"start_ns": record["start"], "wait_ns": record["wait"]}
        took = {f"{stage}_ns": stages.get(stage) for stage in _STAGES}
        rows.append({**about, **times, **took, **{name: stages.get(name) for name in _COUNTS}})
    schema = {name: kind for name, kind in TABLES["input"].items() if name != "phase"}
    return in_phases(pl.DataFrame(rows, schema=schema, strict=False), "start_ns", marked)


def memory(process: Process, marked: pl.DataFrame) -> pl.DataFrame:
    """Return the `memory` table: totals and peaks at phase changes, and one step's allocator events."""
    rows = [row for record in process.of("memory") for row in _peaks(record)]
    rows += [row for record in process.of("snapshot") for row in _events(record)]
    rows += [row for record in process.of("held") for row in _tensors(record)]
    schema = {name: kind for name, kind in TABLES["memory"].items() if name != "phase"}
    return in_phases(pl.DataFrame(rows, schema=schema, strict=False).sort("time_ns"), "time_ns", marked)


def _peaks(record: Record) -> list[Record]:
    common = {"time_ns": record.get("ns"), "device": record.get("device")}
    now = {**common, "event": "now", "allocated": record.get("allocated"), "reserved": record.get("reserved")}
    peak = {"allocated": record.get("peak_allocated"), "reserved": record.get("peak_reserved")}
    return [now, {**common, "event": "peak", **peak}]


def _events(record: Record) -> list[Record]:
    """Return the allocator's events; a block is free when its release is complete, not when requested."""
    device = record.get("device")
    return [
        {"time_ns": ns, "device": device, "event": _ACTIONS.get(event, event), "size": size}
        for ns, event, size in record.get("events", [])
        if event != "free_requested"
    ]


def _tensors(record: Record) -> list[Record]:
    """Return the tensors that optimizers held at the beginning or the end of the attribution phase."""
    event = "held after" if record.get("moment") == "end" else "held"
    return [
        {"time_ns": record["ns"], "event": event, "address": address, "size": size, "device": device,
         "category": category}
        for address, size, device, category in record.get("tensors", [])
    ]  # fmt: skip


def telemetry(raw: Raw) -> pl.DataFrame:
    """Return the `telemetry` table, from the readings of the parent process."""
    schema = TABLES["telemetry"]
    rows = [{name: record.get(name) for name in schema} for record in raw.telemetry]
    return pl.DataFrame(rows, schema=schema, strict=False)


def in_phases(frame: pl.DataFrame, when: str, marked: pl.DataFrame) -> pl.DataFrame:
    """Add phase and burst of the last mark before the time in column `when`; null before the first mark."""
    opened = marked.select(pl.col("ns").alias(when), "phase", "burst").sort(when)
    return frame.sort(when).join_asof(opened, on=when, strategy="backward")
