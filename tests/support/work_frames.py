"""Frames for the tests of `fathom.analysis.work`: a plain reader of Kineto's JSON, and hand-made tables."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from fathom.sounding import TABLES

Tables = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
_WORK = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "set"}


def frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A table of a sounding from rows that name only some of its columns."""
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in TABLES[table]}, schema=TABLES[table]
    )


def read(path: Path, phase: str = "timeline", burst: int = 0, shift: int = 0) -> Tables:
    """ops, launches and kernels of a trace; ids and times moved by `shift`, so that traces can be joined."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    origin = document.get("baseTimeNanoseconds", 0) + shift
    ops: list[dict[str, Any]] = []
    launches: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for event in document["traceEvents"]:
        kind, args = event.get("cat"), event.get("args", {})
        if event.get("ph") != "X" or kind in ("python_function", "Trace", "overhead", None):
            continue
        row: dict[str, Any] = {
            "name": event["name"],
            "start_ns": round(event["ts"] * 1000) + origin,
            "end_ns": round((event["ts"] + event["dur"]) * 1000) + origin,
            "thread": event["tid"],
            "correlation": args.get("correlation"),
            "phase": phase,
            "burst": burst,
        }
        if kind in ("cpu_op", "user_annotation"):
            row |= {"id": len(ops) + shift, "kind": "op" if kind == "cpu_op" else "annotation"}
            row |= {column: _text(args, key) for column, key in _ARGUMENTS.items()}
            ops.append(row)
        elif kind in ("cuda_runtime", "cuda_driver"):
            launches.append(row | {"api": event["name"]})
        elif kind in _WORK:
            name = event["name"]
            row |= {"kind": "collective" if name.startswith("nccl") else _WORK[kind]}
            row |= {"grid": _size(args, "grid"), "block": _size(args, "block"), "bytes": args.get("bytes")}
            row |= {"family": name if kind == "kernel" else None, "stream": args.get("stream"), "device": 0}
            row["direction"] = name.removeprefix("Memcpy ").split(" ")[0] if kind == "gpu_memcpy" else None
            kernels.append(row)
    _nest(ops, launches)
    return frame("ops", ops), frame("launches", launches), frame("kernels", kernels)


_ARGUMENTS = {"shapes": "Input Dims", "dtypes": "Input type", "values": "Concrete Inputs"}


def _text(args: dict[str, Any], key: str) -> str | None:
    return json.dumps(args[key]) if key in args else None


def _size(args: dict[str, Any], key: str) -> str | None:
    return "x".join(map(str, args[key])) if key in args else None


def _nest(ops: list[dict[str, Any]], launches: list[dict[str, Any]]) -> None:
    """Parents of ops and ops of launches, by time on each thread."""
    marked = [(row, "parent") for row in ops] + [(row, "op") for row in launches]
    marked.sort(key=lambda item: (item[0]["start_ns"], -item[0]["end_ns"]))
    open_ops: dict[Any, list[dict[str, Any]]] = {}
    for row, column in marked:
        stack = open_ops.setdefault(row["thread"], [])
        while stack and stack[-1]["end_ns"] <= row["start_ns"]:
            stack.pop()
        row[column] = stack[-1]["id"] if stack else None
        if column == "parent":
            stack.append(row)


def recorded(program: Callable[[], Any]) -> pl.DataFrame:
    """The ops of `program`, run once on the CPU under torch's profiler with shapes."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        program()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recording.export_chrome_trace(str(path))
        return read(path)[0]


def join(*parts: Tables) -> Tables:
    """Tables of several bursts as those of one sounding."""
    ops, launches, kernels = (pl.concat(tables) for tables in zip(*parts, strict=True))
    return ops, launches, kernels
