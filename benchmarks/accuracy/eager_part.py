"""Cut raw records to the steps before a program was compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def cut(raw: Path, steps: int) -> None:
    """Drop a process's raw records from after mark number `steps`, and the fact that it compiled."""
    for file in raw.glob("proc-*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        end = _mark(lines, steps)
        if end is None:
            continue  # a loader's worker
        _drop_traces(raw, file.stem.removeprefix("proc-"), lines, end)
        kept = [
            line for line in lines if line["t"] == "end" or (_start(line) < end and line["t"] != "compiler")
        ]
        file.write_text("".join(json.dumps(_before(line, end)) + "\n" for line in kept))


def _mark(lines: list[dict[str, Any]], steps: int) -> int | None:
    """Return the time of a mark in ns; None where the process has fewer."""
    for line in lines:
        if line["t"] == "marks" and line["k"] <= steps < line["k"] + len(line["ns"]):
            return int(line["ns"][steps - line["k"]])
    return None


def _drop_traces(raw: Path, pid: str, lines: list[dict[str, Any]], end: int) -> None:
    for line in lines:
        if line["t"] == "trace" and line["stop_ns"] >= end:
            for trace in raw.glob(f"*trace-{pid}-{line['burst']}-*"):
                trace.unlink()


def _start(line: dict[str, Any]) -> int:
    """Return when a record begins; 0 where it has no time."""
    when = line.get("ns", line.get("start", line.get("stop_ns", 0)))
    return int((when or [0])[0] if isinstance(when, list) else when)


def _before(line: dict[str, Any], end: int) -> dict[str, Any]:
    return {**line, "ns": [ns for ns in line["ns"] if ns < end]} if line["t"] == "marks" else line
