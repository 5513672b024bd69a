"""Small Kineto traces, written by hand: events, and files of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.support.paths import DATA

KEPT = DATA / "h200"
BASE = 1_700_000_000_000_000_000

Event = dict[str, Any]


def op(name: str, ts: Any, dur: Any, tid: int = 1, cat: str = "cpu_op", **args: Any) -> Event:
    """A host event; `args` with their spaces as underscores."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(api: str, ts: Any, dur: Any, correlation: int, tid: int = 1, cat: str = "cuda_runtime") -> Event:
    """A runtime call."""
    return op(api, ts, dur, tid, cat, correlation=correlation)


def kernel(name: str, ts: Any, dur: Any, correlation: int, stream: int = 7, **args: Any) -> Event:
    """A kernel on device 0."""
    where = {
        "device": 0,
        "stream": stream,
        "correlation": correlation,
        "grid": [4, 2, 1],
        "block": [128, 1, 1],
    }
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
        "args": {**where, **args},
    }  # fmt: skip


def small() -> list[Event]:
    """Two steps of one op that launches one kernel each."""
    events = []
    for k in (0, 1):
        at = 1000.0 * k
        events += [
            op(f"ProfilerStep#{k}", at + 1, 900.0, cat="user_annotation"),
            op(
                "aten::mm",
                at + 10,
                50.5,
                **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]},
            ),
            call("cudaLaunchKernel", at + 20, 10.25, 100 + k),
            kernel("gemm", at + 40, 800.125, 100 + k),
        ]
    return events


def write(path: Path, events: list[Event], keys: dict[str, Any] | None = None, **how: Any) -> Path:
    """The events as a trace file, gzipped where the name says so; `how` goes to `json.dumps`."""
    document = {"schemaVersion": 1, "baseTimeNanoseconds": BASE, **(keys or {}), "traceEvents": events}
    return write_text(path, json.dumps(document, **how))


def write_text(path: Path, text: str | bytes) -> Path:
    """A file of this text, gzipped where the name says so."""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path
