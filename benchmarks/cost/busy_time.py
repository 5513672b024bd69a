"""Busy time of the device a step: by counters sampled in clean steps, and by records of its work.

    python benchmarks/cost/busy_time.py record launch_bound --out OUT -- --steps 100000  # on the target
    python benchmarks/cost/busy_time.py summary OUT

Stretches of steps take turns: in one the share of cycles in which the front end was active is sampled and
nothing else is recorded, in the other kernels, copies and sets are. Needs cupti-python and its privilege.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from burst_cost import BUFFER_MIB, Course, follow
from cost_commands import add_folder, append, device_name, keep, lines, run

COUNTER = "FE_B.TriageCompute.gr__cycles_active.avg.pct_of_peak_sustained_elapsed"
SM = "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
INTERVAL_NS = 20_000
LINES = "busy.jsonl"


class Turns:
    """Samples and records in turns; notes the busy share, or the busy time, of each stretch."""

    def __init__(self, torch: Any) -> None:
        from fathom.probe.counters.activities import activities
        from fathom.probe.counters.cupti import CuptiCollector

        self._activities = activities() or sys.exit("the process has loaded no libcupti that is known")
        self._torch = torch
        self._activities.ready(torch.cuda.synchronize)  # else the monitors cannot be opened
        self._collector = CuptiCollector(torch.cuda.current_device(), BUFFER_MIB << 20)
        self._collector.open()
        self.sampling = False
        self.noted: list[dict[str, Any]] = []

    def arm(self) -> None:
        self.sampling = not self.sampling
        self._activities.ready(self._torch.cuda.synchronize)
        if self.sampling:
            self._collector.configure([COUNTER, SM], INTERVAL_NS)

    def __call__(self, on: bool) -> None:
        if self.sampling:
            self._collector.start() if on else self._collector.stop()
        else:
            self._activities.enable() if on else self._activities.disable()
        if not on:
            self.noted.append(self._sampled() if self.sampling else self._recorded())

    def check(self) -> None:
        """Every stretch is looked at."""

    def _sampled(self) -> dict[str, Any]:
        values = np.array([row for chunk in self._collector.chunks() for row in chunk.values], float)
        shares = np.nanmean(values, axis=0) / 100 if len(values) else [None, None]
        return {"by": "samples", "share": shares[0], "sm": shares[1], "samples": len(values)}

    def _recorded(self) -> dict[str, Any]:
        from fathom.probe.counters.trace import work_of

        work = sorted((item.start, item.end) for item in work_of(self._activities._records()))
        self._activities.drop()
        busy, until = 0, 0
        for start, end in work:
            busy += max(0, end - max(start, until))
            until = max(until, end)
        return {"by": "records", "busy_ns": busy, "pieces": len(work)}


def record(options: argparse.Namespace) -> None:
    """Run the program in this process: one line in the output folder's `busy.jsonl`."""
    os.environ["TEARDOWN_CUPTI"] = "1"
    import torch

    torch.ones(1, device="cuda").sum()
    torch.cuda.synchronize()
    turns = Turns(torch)
    course = Course(
        options.steps, 10**6, torch.cuda.synchronize, turns, lambda: None, warm_s=0.1, most_s=options.seconds
    )
    course.draw.random = lambda: 1.0  # type: ignore[method-assign]  # no shams
    follow(course, options.program, options.arguments)
    rows = [
        {**noted, "inside_ms": item.inside.ms, "beside_ms": (item.before.ms + item.after.ms) / 2}
        for noted, item in zip(turns.noted[1:], course.tried, strict=False)
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"program": options.program, "device": device_name(), "steps": options.steps}
    append(options.out / LINES, {**about, "tried": rows}, shown=False)
    print(reported({**about, "tried": rows}), flush=True)


def reported(row: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds a step that the device was busy, by both, and their ratio; medians over stretches."""
    sampled = [item["share"] * item["inside_ms"] for item in row["tried"] if item["by"] == "samples"]
    recorded = [item["busy_ns"] / row["steps"] / 1e6 for item in row["tried"] if item["by"] == "records"]
    both = [statistics.median(values) if values else float("nan") for values in (sampled, recorded)]
    about = {key: row[key] for key in ("program", "device")}
    counts = {"stretches": [len(sampled), len(recorded)]}
    return {**about, "sampled_ms": both[0], "recorded_ms": both[1], "ratio": both[1] / both[0], **counts}


def summary(options: argparse.Namespace) -> None:
    """Write what the runs in the output folder amount to."""
    keep("busy_time.json", [reported(row) for row in lines(options.out / LINES)])


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", help="of benchmarks/programs or examples, with an optimizer")
    parser.add_argument("--steps", type=int, default=8, help="of a stretch")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--out", type=Path, default=Path("out/busy"))


if __name__ == "__main__":
    run(__doc__, {record: add_record, summary: add_folder})
