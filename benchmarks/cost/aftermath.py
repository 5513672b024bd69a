"""How long steps take after a burst of the timeline, and which part of the burst lengthens them.

    python benchmarks/cost/aftermath.py record launch_bound --out out/aftermath -- --steps 100000
    python benchmarks/cost/aftermath.py summary out/aftermath

In recordings of launch-bound programs, clean steps after a burst are longer than those before the first
one. The host's other work moves them as much, so that only many bursts in one process decide. Each trial
waits `--warm` seconds of steps, times `--steps` steps, does one of these acts, which is two steps long, and
times the steps of the next half second. The acts take turns in random order:

    nothing   two steps as usual
    pause     the process sleeps as long as saving a burst takes
    python    builds and writes as many events as a burst has, with no profiler
    bare      CUPTI records, and the records are dropped
    saved     CUPTI records, and the records are written: what a recording does
    detached  the same, and CUPTI is finalised afterwards (`cuptiFinalize`), as Kineto does at its teardown

`summary` gives for each act the median ratio of steps afterwards to steps before, by time since the act,
with an interval from resampling trials. The last three acts need a GPU, and nothing else on the machine.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from burst_cost import follow
from cost_commands import add_folder, append, device_name, keep, lines, run

from fathom.probe.collecting import uncollected
from fathom.probe.counters.activities import Activities, Subscriber, activities, launch

LINES = "aftermath.jsonl"
WARM_UP = 60  # steps
WINDOWS_MS = (0, 50, 150, 500)  # since the act
EVENTS, PAUSE_S = 1500, 0.06  # of a burst in launch_bound
RUNTIME_DOMAIN, AT_EXIT = 2, 1  # CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_API_EXIT
RESAMPLES = 4000
RECORDING = {"bare", "saved", "detached"}
ACTS = ("nothing", "pause", "python", "bare", "saved", "detached")


class Detaching(Activities):
    """Activities that can detach CUPTI from the process."""

    def detach(self, touch: Callable[[], None]) -> None:
        """Finalise CUPTI from the exit of a runtime call, which `touch` makes: the only safe place for it."""
        done = []

        def finalise(_: int, __: int, ___: int, data: int) -> None:
            if not done and ctypes.c_uint32.from_address(data).value == AT_EXIT:
                done.append(self._library.cuptiFinalize())

        callback, subscriber = Subscriber(finalise), ctypes.c_void_p()
        self._detaching = callback  # CUPTI calls it until it is finalised
        self._ask("cuptiSubscribe", ctypes.byref(subscriber), callback, None)
        self._ask("cuptiEnableDomain", ctypes.c_uint32(1), subscriber, RUNTIME_DOMAIN)
        touch()
        if done != [0]:
            sys.exit(f"cuptiFinalize was not called, or failed: {done}")


class Trials:
    """Called after each step of the program, as `Course` in burst_cost.py."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self._torch, self._options = torch, options
        if RECORDING.intersection(options.acts):
            known = activities()
            if known is None:
                sys.exit("the process has loaded no libcupti that is known")
            self._tracer = Detaching(known._library)
        self._file = options.out / "trace.json"
        self._draw = random.Random(options.seed)
        self.tried: list[dict[str, Any]] = []
        self.ended = False
        self._until = time.monotonic() + options.seconds
        self._course = self._steps()
        next(self._course)

    def __call__(self) -> None:
        next(self._course, None)

    def _steps(self) -> Iterator[None]:
        for _ in range(WARM_UP):
            yield
        for act in [act for act in self._options.acts if act in RECORDING][:2]:  # the first burst rehearses
            yield from self._act(act)
        while time.monotonic() < self._until:
            for act in self._draw.sample(self._options.acts, len(self._options.acts)):
                yield from self._trial(act)
        self.ended = True
        yield

    def _trial(self, act: str) -> Iterator[None]:
        yield from self._for(self._options.warm, [])
        before: list[float] = []
        for _ in range(self._options.steps):
            begun = time.perf_counter()
            yield
            before.append(1e3 * (time.perf_counter() - begun))
        begun = time.perf_counter()
        yield from self._act(act)
        lasted = time.perf_counter() - begun
        after: list[tuple[float, float]] = []
        yield from self._for(WINDOWS_MS[-1] / 1e3, after)
        self.tried.append({"act": act, "lasted_ms": 1e3 * lasted, "before": before, "after": after})

    def _for(self, seconds: float, noted: list[tuple[float, float]]) -> Iterator[None]:
        """Steps of the next `seconds`: when each begins since now, and its length, in ms."""
        origin = time.perf_counter()
        while (begun := time.perf_counter()) - origin < seconds:
            yield
            noted.append((1e3 * (begun - origin), 1e3 * (time.perf_counter() - begun)))

    def _act(self, act: str) -> Iterator[None]:
        records = act in RECORDING
        if records:
            if not self._tracer.ready(self._settle):
                sys.exit("another profiler holds CUPTI; set TEARDOWN_CUPTI=1")
            self._tracer.enable(lambda: launch(self._torch.cuda), calls=True)
        for _ in range(2):
            yield
        self._settle()
        if records:
            self._end(act)
        elif act == "pause":
            time.sleep(PAUSE_S)
        elif act == "python":
            write_events(self._file)

    def _end(self, act: str) -> None:
        self._tracer.disable()
        if act == "bare":
            self._tracer.drop()
            return
        with uncollected():
            self._tracer.save(str(self._file))
        if act == "detached":
            self._tracer.detach(self._settle)

    def _settle(self) -> None:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()


def write_events(path: Path) -> None:
    """Write as many events as a burst of launch_bound has, built as its records are."""
    with uncollected():
        event = {"ph": "X", "cat": "kernel", "name": "kernel", "pid": 0, "tid": 7, "ts": 0.5, "dur": 1.5}
        args = {"device": 0, "stream": 7, "grid": [1, 1, 1], "block": [128, 1, 1]}
        texts = [json.dumps({**event, "args": {**args, "correlation": n}}) for n in range(EVENTS)]
        path.write_text(",\n".join(texts))


def record(options: argparse.Namespace) -> None:
    """Run the program in this process until the time is over; adds a line to the folder."""
    os.environ["TEARDOWN_CUPTI"] = "1"
    import torch

    if torch.cuda.is_available():
        torch.ones(1, device="cuda").sum()  # libcupti is loaded with the first context
    options.out.mkdir(parents=True, exist_ok=True)
    trials = Trials(torch, options)
    follow(trials, options.program, options.arguments)  # type: ignore[arg-type]  # it is called as a Course is
    row = {"program": options.program, "device": device_name(), "trials": trials.tried}
    append(options.out / LINES, row, shown=False)
    print(json.dumps(figures(row)), flush=True)


def figures(row: dict[str, Any]) -> dict[str, Any]:
    """By act: trials, its length, and by window the median ratio to the steps before, with an interval."""
    acts = {}
    for act in dict.fromkeys(trial["act"] for trial in row["trials"]):
        trials = [trial for trial in row["trials"] if trial["act"] == act]
        windows = {f"{low}-{high} ms": _ratio(trials, low, high) for low, high in pairwise(WINDOWS_MS)}
        lasted = float(np.median([trial["lasted_ms"] for trial in trials]))
        before = float(np.median([np.median(trial["before"]) for trial in trials]))
        acts[act] = {
            "trials": len(trials),
            "lasted_ms": round(lasted, 2),
            "before_ms": round(before, 3),
            **windows,
        }
    return {"program": row["program"], "device": row["device"], "acts": acts}


def _ratio(trials: list[dict[str, Any]], low: float, high: float) -> list[float] | None:
    """Median over trials and its interval of 95 %."""
    ratios = []
    for trial in trials:
        inside = [took for since, took in trial["after"] if low <= since < high]
        if inside:
            ratios.append(float(np.median(inside) / np.median(trial["before"])))
    if not ratios:
        return None
    drawn = np.median(np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    return [round(float(value), 4) for value in (np.median(ratios), *np.percentile(drawn, [2.5, 97.5]))]


def summary(options: argparse.Namespace) -> None:
    """Write the figures of all runs in the folder to benchmarks/results/aftermath.json."""
    keep("aftermath.json", [figures(row) for row in lines(options.out / LINES)])


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program")
    parser.add_argument("--acts", nargs="+", choices=ACTS, default=list(ACTS))
    parser.add_argument("--steps", type=int, default=20, help="timed before each act")
    parser.add_argument("--warm", type=float, default=0.3, help="seconds of steps between trials")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/aftermath"))


if __name__ == "__main__":
    run(__doc__, {record: add_record, summary: add_folder})
