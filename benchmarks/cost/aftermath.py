"""Time that each way to record adds to a step, and that CUPTI adds afterwards.

    python benchmarks/cost/aftermath.py record launch_bound --out out/aftermath -- --steps 100000
    python benchmarks/cost/aftermath.py summary out/aftermath

Once used, CUPTI slows every launch until it is detached, so only steps of a process without it are clean.
Each trial times steps without CUPTI (`before`), steps while it records (`during`), steps while it is attached
but records nothing (`after`), and steps once it is detached (`later`). The ways take turns in random order:

    nothing   CUPTI is not used
    attached  CUPTI is attached; it records nothing
    work      kernels, copies and fills
    queued    the same, with queue times of kernels and the calls that wait: a dense timeline
    calls     work, queue times and selected calls of the runtime: the timeline of a program with few launches
    syncs     work and queue times, with synchronisations as activity records
    pinned    as `queued`, with CUPTI's timestamps in pinned host memory instead of the device's

`summary` gives the median ratio to the steps before and after without CUPTI, with an interval from resampling
trials. Needs a GPU with nothing else on the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from burst_cost import follow
from cost_commands import add_folder, append, device_name, keep, lines, run

from fathom.probe.counters.activities import CALLS, QUEUED, WORK, Activities, activities, launch

LINES = "aftermath.jsonl"
SYNC = 38  # CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
WAYS = {"attached": WORK, "work": WORK, "queued": QUEUED, "calls": CALLS, "syncs": QUEUED, "pinned": QUEUED}
PINNED = 8  # CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED
WARM_UP, REST, COLD = 60, 30, 3  # steps: at first, before a trial, after a change
BESIDE, RECORDED = 20, 16  # steps timed without, and with recording
RESAMPLES = 4000


class Trials:
    """Called after each step of the program, as `Course` in burst_cost.py."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self._torch, self._options = torch, options
        self._draw = random.Random(options.seed)
        self.tried: list[dict[str, Any]] = []
        self.ended = False
        self._until = time.monotonic() + options.seconds
        self._course = self._steps()
        next(self._course)

    def __call__(self) -> None:
        next(self._course, None)

    def _steps(self) -> Iterator[None]:
        yield from steps(WARM_UP)
        tracer = activities() or sys.exit("the process has loaded no libcupti that is known")
        while time.monotonic() < self._until:
            for way in self._draw.sample(self._options.ways, len(self._options.ways)):
                yield from self._trial(tracer, way)
        self.ended = True
        yield

    def _trial(self, tracer: Activities, way: str) -> Iterator[None]:
        trial: dict[str, Any] = {"way": way, "before": [], "during": [], "after": [], "later": []}
        yield from steps(REST)
        yield from steps(BESIDE, trial["before"])
        if way in WAYS:
            self._begin(tracer, way)
        yield from steps(1)
        yield from steps(RECORDED, trial["during"])
        self._settle()
        if way in WAYS:
            if tracer.enabled:
                self._end(tracer, way)
            tracer.drop()
        yield from steps(COLD)
        yield from steps(BESIDE, trial["after"])
        if way in WAYS and not tracer.detach(self._settle):
            sys.exit("CUPTI could not be detached")
        yield from steps(COLD)
        yield from steps(BESIDE, trial["later"])
        self.tried.append(trial)

    def _begin(self, tracer: Activities, way: str) -> None:
        if not tracer.ready(self._settle):
            sys.exit("another profiler holds CUPTI; set TEARDOWN_CUPTI=1")
        if way == "attached":
            return
        if way == "pinned":
            size, yes = ctypes.c_size_t(1), ctypes.c_uint8(1)
            tracer._ask("cuptiActivitySetAttribute", PINNED, ctypes.byref(size), ctypes.byref(yes))
        tracer._switch_on(WAYS[way])
        if way == "syncs":
            tracer._ask("cuptiActivityEnable", SYNC)
        launch(self._torch.cuda)

    @staticmethod
    def _end(tracer: Activities, way: str) -> None:
        if way == "syncs":
            tracer._ask("cuptiActivityDisable", SYNC)
        tracer.disable()

    def _settle(self) -> None:
        self._torch.cuda.synchronize()


def steps(count: int, into: list[float] | None = None) -> Iterator[None]:
    """Yield to `count` steps, and append their lengths in ms to `into`."""
    for _ in range(count):
        begun = time.perf_counter()
        yield
        if into is not None:
            into.append(1e3 * (time.perf_counter() - begun))


def record(options: argparse.Namespace) -> None:
    """Run the program in this process until the time is over; append a line to the folder."""
    os.environ["TEARDOWN_CUPTI"] = "1"
    import torch

    torch.ones(1, device="cuda").sum()  # libcupti is loaded with the first context
    options.out.mkdir(parents=True, exist_ok=True)
    trials = Trials(torch, options)
    follow(trials, options.program, options.arguments)  # type: ignore[arg-type]  # it is called as a Course is
    row = {"program": options.program, "device": device_name(), "trials": trials.tried}
    append(options.out / LINES, row, shown=False)
    print(json.dumps(figures(row)), flush=True)


def figures(row: dict[str, Any]) -> dict[str, Any]:
    """By way: the number of trials, the clean step in ms, and ratios with an interval of 95 %."""
    ways = {}
    for way in dict.fromkeys(trial["way"] for trial in row["trials"]):
        trials = [trial for trial in row["trials"] if trial["way"] == way]
        clean = [float(np.median(trial["before"])) for trial in trials]
        both = [(a + float(np.median(trial["later"]))) / 2 for a, trial in zip(clean, trials, strict=True)]
        ways[way] = {
            "trials": len(trials),
            "clean_ms": round(float(np.median(clean)), 2),
            **{part: _ratio(trials, part, both) for part in ("during", "after")},
            "later": _ratio(trials, "later", clean),
        }
    return {"program": row["program"], "device": row["device"], "ways": ways}


def _ratio(trials: list[dict[str, Any]], part: str, clean: list[float]) -> list[float]:
    """Return the median over trials, and the ends of its interval."""
    ratios = [float(np.median(trial[part])) / ms for trial, ms in zip(trials, clean, strict=True)]
    drawn = np.median(np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    return [round(float(value), 3) for value in (np.median(ratios), *np.percentile(drawn, [2.5, 97.5]))]


def summary(options: argparse.Namespace) -> None:
    """Write the figures of all runs of a program, together, to benchmarks/results/aftermath.json."""
    rows = lines(options.out / LINES)
    runs = {(row["program"], row["device"]): [] for row in rows}
    for row in rows:
        runs[row["program"], row["device"]] += row["trials"]
    merged = [{"program": name, "device": device, "trials": all_} for (name, device), all_ in runs.items()]
    keep("aftermath.json", [figures(row) for row in merged])


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program")
    parser.add_argument("--ways", nargs="+", choices=("nothing", *WAYS), default=["nothing", *WAYS])
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/aftermath"))


if __name__ == "__main__":
    run(__doc__, {record: add_record, summary: add_folder})
