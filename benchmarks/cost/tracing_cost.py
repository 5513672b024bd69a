"""Cost of each way to trace, per launch and per step: kernels alone, with calls of the runtime, Kineto.

    python benchmarks/cost/tracing_cost.py launches --out OUT              # on the target, alone
    python benchmarks/cost/tracing_cost.py steps launch_bound --out OUT --seconds 60 -- --steps 100000

`launches` times small torch ops in two threads with and without each way (see launch_cost.py). `steps` runs a
program of benchmarks/programs or examples whose optimizer steps are counted: each stretch of traced steps
lies between two clean ones and is given as its ratio to their geometric mean; the ways take turns.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import statistics
import struct
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from burst_cost import Course, Tried, follow
from cost_commands import append, device_name, run
from launch_cost import Launches, reported

from fathom.probe.counters.activities import FORCED, Activities, CuptiError, activities, launch
from fathom.probe.counters.records import KINDS

RUNTIME, DRIVER, SYNC = 5, 4, 38  # kinds of activities
LAUNCHES_ONLY = ("LaunchKernel", "GraphLaunch", "MemcpyAsync", "MemsetAsync", "LaunchCooperative")
CHOSEN = (
    *LAUNCHES_ONLY,
    *("Memcpy", "Memset", "Synchronize", "Malloc", "Free", "HostAlloc", "HostRegister", "HostUnregister"),
    *("ModuleLoad", "LibraryLoad", "EventQuery", "StreamQuery"),
)
DRIVER_CHOSEN = ("cuLaunchKernel", "cuGraphLaunch", "cuModuleLoad", "cuLibraryLoad", "cuLaunchCooperative")


def ids(library: Any, domain: int) -> dict[int, str]:
    result = {}
    for cbid in range(1, 2000):
        name = ctypes.c_char_p()
        if library.cuptiGetCallbackName(domain, cbid, ctypes.byref(name)):
            break
        result[cbid] = (name.value or b"").decode()
    return result


class Way(Activities):
    """Activities with some calls of the runtime, or all of them."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.names = ids(library, 2), ids(library, 1)
        self.be()

    def be(
        self,
        kinds: tuple[int, ...] = KINDS,
        calls: tuple[str, ...] = (),
        driver: tuple[str, ...] = (),
        latency: bool = False,
        thread_ids: int = 0,
        flush_ms: int = 0,
        order: str = "without",
    ) -> None:
        """Record this from now on: the library keeps the callbacks that it was given first."""
        self.kinds, self.latency, self.flush_ms, self.thread_ids = kinds, latency, flush_ms, thread_ids
        self.order = order
        self.cbids = {i for i, n in self.names[0].items() if any(c in n for c in calls)}
        self.driver = {i for i, n in self.names[1].items() if any(n.startswith(c) for c in driver)}

    def _switch_on(self) -> None:
        if self.thread_ids:
            self._ask("cuptiSetThreadIdType", self.thread_ids)
        self._ask("cuptiActivityRegisterCallbacks", *self._callbacks)
        self._zeroed(1)
        if self.latency:
            self._ask("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(1))
        if self.flush_ms:
            self._ask("cuptiActivityFlushPeriod", self.flush_ms)
        self.enabled = True
        if self.order == "before":
            self._single(1)
        for kind in self.kinds:
            self._ask("cuptiActivityEnable", kind)
        if self.order == "after":
            self._single(1)
        elif self.order == "without":
            self._without()

    def _single(self, on: int) -> None:
        for cbid in self.cbids:
            self._ask("cuptiActivityEnableRuntimeApi", cbid, ctypes.c_uint8(on))
        for cbid in self.driver:
            self._ask("cuptiActivityEnableDriverApi", cbid, ctypes.c_uint8(on))

    def _without(self) -> None:
        """The kind, and then without the other calls."""
        sides = (
            (RUNTIME, self.cbids, self.names[0], "cuptiActivityEnableRuntimeApi"),
            (DRIVER, self.driver, self.names[1], "cuptiActivityEnableDriverApi"),
        )
        for kind, chosen, names, switch in sides:
            if not chosen:
                continue
            self._ask("cuptiActivityEnable", kind)
            for cbid in names:
                if cbid not in chosen:
                    getattr(self._library, switch)(cbid, ctypes.c_uint8(0))

    def disable(self) -> None:
        self.enabled = False
        if self.order in ("before", "after"):
            self._single(0)
        elif self.cbids or self.driver:
            for kind, chosen in ((RUNTIME, self.cbids), (DRIVER, self.driver)):
                if chosen:
                    self._ask("cuptiActivityDisable", kind)
        for kind in self.kinds:
            self._ask("cuptiActivityDisable", kind)
        self._ask("cuptiActivityFlushAll", FORCED)
        self._zeroed(0)
        if self.latency:
            self._ask("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(0))
        if self.flush_ms:
            self._ask("cuptiActivityFlushPeriod", 0)
        if self.thread_ids:
            self._ask("cuptiSetThreadIdType", 0)

    def raw(self) -> list[tuple[int, bytes]]:
        """Kind and the first 160 bytes of every record."""
        result = []
        for block, size in self._full:
            record, start = ctypes.c_void_p(), ctypes.addressof(block)
            while size and self._next(start, size, record):
                at = record.value or 0
                kind = ctypes.c_uint32.from_address(at).value
                result.append((kind, ctypes.string_at(at, 160 if kind == 10 else 40)))
        return result


class Switch:
    """Arms and switches one way; None does nothing."""

    def __init__(self, torch: Any, way: Way | None, out: Path, name: str, about: dict[str, Any]) -> None:
        self._torch, self._way, self._out, self._name, self._about = torch, way, out, name, about
        self.checked = False
        self.failed = ""

    def arm(self) -> None:
        if self._way is None:
            return
        self._way.be(**self._about)
        if not self._way.ready(self._torch.cuda.synchronize):
            self.failed = "not ready"

    def __call__(self, on: bool) -> None:
        if self._way is None or self.failed:
            return
        try:
            if on:
                self._way.enable(partial(launch, self._torch.cuda))
            else:
                self._way.disable()
                if not self.checked:
                    self.check()
                self._way.drop()
        except CuptiError as error:
            self.failed = str(error)
            print(self._name, error, flush=True)

    def check(self) -> None:
        """Note what one burst holds."""
        self.checked = True
        if self._way is None:
            return
        import threading

        names = self._way.names
        now = ctypes.c_uint64()
        pairs = []
        for _ in range(5):
            before = time.time_ns()
            self._way._library.cuptiGetTimestamp(ctypes.byref(now))
            pairs.append((before, now.value, time.time_ns()))
        counts: dict[str, int] = {}
        threads: dict[str, int] = {}
        kernels, calls = {}, {}
        for kind, data in self._way.raw():
            if kind in (RUNTIME, DRIVER):
                _, cbid, start, end, _pid, thread, correlation, _ = struct.unpack("=IIQQIIII", data)
                name = names[kind == DRIVER].get(cbid, "?")
                counts[name] = counts.get(name, 0) + 1
                threads[str(thread)] = threads.get(str(thread), 0) + 1
                calls.setdefault(correlation, (start, end, name))
            else:
                counts[str(kind)] = counts.get(str(kind), 0) + 1
                if kind == 10:
                    start, end = struct.unpack_from("=QQ", data, 16)
                    correlation = struct.unpack_from("=I", data, 92)[0]
                    queued, submitted = struct.unpack_from("=QQ", data, 120)
                    kernels[correlation] = (start, end, queued, submitted)
        both = [(calls[c], kernels[c]) for c in kernels if c in calls]
        about = {
            "name": self._name,
            "counts": counts,
            "threads": threads,
            "clock": pairs,
            "main": [threading.get_ident(), threading.get_native_id()],
            "joined": len(both),
            "kernels": len(kernels),
            "lags_us": [round((k[0] - c[0]) / 1e3, 2) for c, k in both[:20]],
            "lasts_us": [round((c[1] - c[0]) / 1e3, 2) for c, k in both[:20]],
            "queued_us": [
                (round((k[2] - c[0]) / 1e3, 2), round((k[3] - c[0]) / 1e3, 2)) for c, k in both[:10]
            ],
            "queued": [list(k) for k in list(kernels.values())[:3]],
        }
        append(self._out / "checks.jsonl", about, shown=False)


class KinetoSwitch:
    """Kineto: the device alone, or ops too."""

    def __init__(self, device_only: bool, file: Path) -> None:
        from fathom.probe.kineto import Kineto

        self._kineto, self._device_only, self._file = Kineto(), device_only, file
        self.failed = ""

    def arm(self) -> None:
        self._kineto.prepare(device_only=self._device_only)
        self._ready = True

    def __call__(self, on: bool) -> None:
        if on:
            self._kineto.enable()
        else:
            self._kineto.disable()
            if self._device_only and not self._file.exists():
                self._kineto.save(str(self._file))
            else:
                self._kineto.drop()


def ways(torch: Any, out: Path, chosen: list[str]) -> dict[str, Any]:
    result = activities()
    if result is None:
        sys.exit("the process has loaded no known libcupti")
    way = Way(result._library)
    launching = "cuLaunchKernel", "cuGraphLaunch"
    made: dict[str, dict[str, Any] | None] = {
        "none": None,
        "kernels": {},
        "launches": {"calls": LAUNCHES_ONLY, "driver": launching},
        "chosen": {"calls": CHOSEN, "driver": DRIVER_CHOSEN},
        "chosen-runtime": {"calls": CHOSEN},
        "all-runtime": {"kinds": (*KINDS, RUNTIME)},
        "all": {"kinds": (*KINDS, RUNTIME, DRIVER)},
        "launches-alone": {"kinds": (), "calls": LAUNCHES_ONLY},
        "chosen-alone": {"kinds": (), "calls": CHOSEN, "driver": DRIVER_CHOSEN},
        "latency": {"latency": True},
        "queued": {"latency": True, "kinds": (*KINDS, SYNC)},
        "chosen-system": {"calls": CHOSEN, "driver": DRIVER_CHOSEN, "thread_ids": 1},
        "chosen-flush": {"calls": CHOSEN, "driver": DRIVER_CHOSEN, "flush_ms": 10_000},
        "driver-launches": {"driver": launching},
    }
    kineto = {"kineto-device": True, "kineto-ops": False}
    return {
        name: KinetoSwitch(kineto[name], out / "kineto-device.json")
        if name in kineto
        else Switch(torch, way if made[name] is not None else None, out, name, made[name] or {})
        for name in chosen
    }


ALL = (
    "none,kernels,launches,chosen,chosen-runtime,all-runtime,all,launches-alone,chosen-alone,latency,"
    "chosen-system,chosen-flush,driver-launches"
)


def prepared(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    os.environ["TEARDOWN_CUPTI"] = "1"
    import torch

    if options.pinned:
        result = activities()
        if result is not None:
            size, value = ctypes.c_size_t(1), ctypes.c_uint8(1)
            print(
                "pinned",
                result._library.cuptiActivitySetAttribute(8, ctypes.byref(size), ctypes.byref(value)),
            )
    torch.ones(1, device="cuda").sum()
    torch.cuda.synchronize()
    options.out.mkdir(parents=True, exist_ok=True)
    return torch, ways(torch, options.out, options.ways.split(","))


def launches(options: argparse.Namespace) -> None:
    """Time small ops in two threads, with and without each way."""
    torch, switches = prepared(options)
    made = Launches(torch)
    for _ in range(20):
        made()
    order = [name for name in switches for _ in range(options.rounds)]
    random.Random(0).shuffle(order)
    rounds: dict[str, Any] = {name: ([], []) for name in switches}
    for name in order:
        switches[name].arm()
        made()
        rounds[name][1].append(made())
        switches[name](True)
        rounds[name][0].append(made())
        switches[name](False)
    for name, (on, off) in rounds.items():
        row = {
            "way": name,
            "pinned": options.pinned,
            "threads": reported(on, off, len(made.ops)),
            "failed": switches[name].failed,
            "device": device_name(),
        }
        append(options.out / "launches.jsonl", row)


class Turns:
    """The switches of `Course`: the ways in turns."""

    def __init__(self, switches: dict[str, Any]) -> None:
        self._switches, self.order = switches, []
        self._draw, self._left = random.Random(1), []

    def arm(self) -> None:
        if not self._left:
            self._left = list(self._switches)
            self._draw.shuffle(self._left)
        self.order.append(self._left.pop())
        self._switches[self.order[-1]].arm()

    def __call__(self, on: bool) -> None:
        self._switches[self.order[-1]](on)

    def check(self) -> None:
        """Nothing: each way looks at its own first burst."""


def steps(options: argparse.Namespace) -> None:
    """Time steps of a program, with and without each way."""
    torch, switches = prepared(options)
    turns = Turns(switches)

    class Never(random.Random):
        def random(self) -> float:
            return 1.0

    course = Course(
        options.stretch,
        10**6,
        torch.cuda.synchronize,
        turns,
        lambda: None,
        warm_s=0.04,
        most_s=options.seconds,
        draw=Never(),
    )
    follow(course, options.program, options.arguments)
    by: dict[str, list[Tried]] = {}
    for name, item in zip(turns.order[1:], course.tried, strict=False):
        by.setdefault(name, []).append(item)
    for name, tried in by.items():
        ratios = [t.inside.ms / (t.before.ms * t.after.ms) ** 0.5 for t in tried]
        cuts = statistics.quantiles(ratios, n=4) if len(ratios) > 3 else [0, 0, 0]
        row = {
            "program": options.program,
            "way": name,
            "n": len(ratios),
            "pinned": options.pinned,
            "mean": round(statistics.fmean(ratios), 4),
            "median": round(statistics.median(ratios), 4),
            "se": round(statistics.stdev(ratios) / len(ratios) ** 0.5, 4) if len(ratios) > 1 else None,
            "quarters": [round(c, 4) for c in cuts],
            "beside_ms": round(statistics.median([t.before.ms for t in tried]), 3),
            "steps_median": round(
                statistics.median(
                    [
                        statistics.median(t.inside.steps)
                        / (statistics.median(t.before.steps) * statistics.median(t.after.steps)) ** 0.5
                        for t in tried
                    ]
                ),
                4,
            ),
            "first_step": round(
                statistics.median(
                    [t.inside.steps[0] / (t.before.steps[0] * t.after.steps[0]) ** 0.5 for t in tried]
                ),
                4,
            ),
            "failed": switches[name].failed,
        }
        append(options.out / "steps.jsonl", row)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ways", default=ALL)
    parser.add_argument("--pinned", action="store_true", help="CUPTI's device buffers in pinned host memory")
    parser.add_argument("--out", type=Path, default=Path("out/tracing"))


def add_launches(parser: argparse.ArgumentParser) -> None:
    add(parser)
    parser.add_argument("--rounds", type=int, default=40)


def add_steps(parser: argparse.ArgumentParser) -> None:
    add(parser)
    parser.add_argument("program")
    parser.add_argument("--stretch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)


if __name__ == "__main__":
    run(__doc__, {launches: add_launches, steps: add_steps})
