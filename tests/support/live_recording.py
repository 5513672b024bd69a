"""Raw records of a running program, written line by line as the probe and the recorder write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BEGUN = 1_700_000_000_000_000_000
MS, S = 1_000_000, 1_000_000_000
COLUMNS = ["loader", "epoch", "batch", "worker", "pid", "nth", "thread", "start", "wait"]


class LiveRecording:
    """A recording whose program takes steps when the test says so; `now` is the time of its last mark."""

    def __init__(self, folder: Path, *, depth: str = "auto", rank: int = 0, pid: int = 7) -> None:
        self.folder, self.raw = folder, folder / "raw"
        self.raw.mkdir(parents=True, exist_ok=True)
        self.now, self.k, self.phase, self.burst = BEGUN, -1, "clean", 1
        self.log = self.raw / f"proc-{pid}.jsonl"
        machine = {"gpus": [{"index": 0, "name": "H200", "memory_bytes": 141 * 2**30}], "host": {}}
        launch = {"command": ["python", "train.py"], "start_ns": BEGUN, "machine": machine}
        (self.raw / "launch.json").write_text(json.dumps(launch))
        (self.raw / "plan.json").write_text(json.dumps({"depth": depth}))
        self.say(t="process", pid=pid, rank=rank, role="rank", host="node")
        self.say(t="clock", source="optimizer", k=0, ns=BEGUN)

    def say(self, **record: Any) -> None:
        """Append a record."""
        with self.log.open("a") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def steps(self, count: int, ms: float, *, wait_ms: float = 0.0, kind: str = "train") -> None:
        """Take steps of equal length, of which the first `wait_ms` wait for a batch."""
        opened = [self.now] if self.k < 0 else []
        ends = [self.now + int((i + 1) * ms * MS) for i in range(count)]
        if wait_ms:
            begins = [self.now, *ends[:-1]]
            rows = [[0, 0, i, None, None, i, 1, ns, int(wait_ms * MS)] for i, ns in enumerate(begins)]
            self.say(t="batches", columns=COLUMNS, rows=rows)
        times = opened + ends
        first = self.k + 1
        self.say(
            t="marks", k=first, ns=times, source="optimizer", thread=1, phase=self.phase, burst=self.burst,
            kind=kind, samples=32, tokens=None, stream=None, query=None,
        )  # fmt: skip
        self.k, self.now = first + len(times) - 1, times[-1]

    def sensors(self, **reading: Any) -> None:
        """Append a reading of a sensor."""
        with (self.raw / "telemetry.jsonl").open("a") as file:
            file.write(json.dumps({"time_ns": self.now, **reading}) + "\n")

    def end(self, **ending: Any) -> None:
        """Write how the program ended."""
        (self.raw / "end.json").write_text(json.dumps({"ended": "finished", "exit_status": 0, **ending}))
