"""Cost of the clean phase per step, within one process: stretches with Fathom and without, A B B A.

    python benchmarks/cost/stretches.py record launch_bound --runs 4 --out out/stretches -- --steps 6000
    python benchmarks/cost/stretches.py summary out/stretches

Two processes of one program differ by 4 % on a virtual machine, for all of their life: whole runs
(`cost.py pairs`) need hundreds of pairs to show 1 %. So a program is recorded at the depth `surface`, and
after every stretch of steps Fathom's hooks are taken off or put on again; while they are off, the process
that reads the telemetry is stopped. What remains is the program as it was written.

Four stretches, off on on off or the other way round by chance, make one ratio, of the medians of their steps
and of the means. `--sham` takes the hooks off and puts them on in between alike: its ratio has to be 1.
`record` needs no library but Python's and torch; `summary` writes `results/stretches.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import runpy
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cost_commands import add_folder, append, device_name, keep, lines, run
from launcher import RECORDING, as_started, execute, pinned, records, under_fathom

LINES = "stretches.jsonl"
SETTLE, WARM_UP = 40, 100  # steps before the clean phase, and before the first stretch
STRETCH, SKIPPED = 2, 1  # steps of a stretch, and those after its beginning that do not count
ORDERS = ((False, True, True, False), (True, False, False, True))  # whether the hooks are on
RESAMPLES = 4_000


@dataclass
class Switch:
    """Called after each step: takes Fathom off and puts it on, and notes whether it was on."""

    sham: bool
    seed: int
    on: bool = True
    noted: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        from fathom.probe import current
        from fathom.probe.hooks import install as hooks

        self._session, self._hooks = current.session, hooks
        self._reader = os.getppid()  # of the telemetry
        self._order = orders(self.seed)

    def __call__(self) -> None:
        self.noted.append(self.on)
        stretched = len(self.noted) - WARM_UP
        if stretched >= 0 and stretched % STRETCH == 0:
            self.turn(next(self._order))

    def turn(self, on: bool) -> None:
        """Both ways do the same work, but for what they leave behind."""
        if on == self.on:
            return
        self.on = on
        self._hooks.remove()
        self._install()
        if not on and not self.sham:
            self._hooks.remove()
            os.kill(self._reader, signal.SIGSTOP)
        else:
            os.kill(self._reader, signal.SIGCONT)

    def _install(self) -> None:
        """The hooks as they are once it is known what counts steps: some look for it, and then rest."""
        session = self._session
        waiting = len(session.on_clock)
        self._hooks.install(session)
        if session.chooser.clock is not None:
            for chosen in session.on_clock[waiting:]:
                chosen(session.chooser.clock[0])
        del session.on_clock[waiting:]


def orders(seed: int) -> Iterator[bool]:
    """Stretch by stretch, whether Fathom is on."""
    draw = random.Random(seed)
    while True:
        yield from draw.choice(ORDERS)


def child(options: argparse.Namespace) -> None:
    """Inside the recorded process: the program, switched after each of its steps."""
    file = as_started(options.program, [*options.arguments, "--times", str(options.times)])
    import common  # of the programs

    switch, lap = Switch(options.sham, options.seed), common.Stopwatch.lap

    def lap_and_switch(watch: Any) -> None:
        lap(watch)
        switch()

    common.Stopwatch.lap = lap_and_switch
    try:
        runpy.run_path(file, run_name="__main__")
    finally:
        switch.turn(True)
    document = json.loads(options.times.read_text())
    options.times.write_text(json.dumps({"steps_s": document["steps_s"], "on": switch.noted}))


def record(options: argparse.Namespace) -> None:
    """Record the runs: one line each in the output folder's `stretches.jsonl`."""
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.runs):
        times, folder = options.out / "times.json", options.out / RECORDING
        own = ["child", options.program, "--times", str(times), "--seed", str(random.randrange(2**31))]
        own += ["--sham"] if options.sham else []
        command = [sys.executable, __file__, *own, "--", *options.arguments]
        ways = ["--no-measure", "--replace", "--depth", "surface", "--settle", str(SETTLE)]
        outcome = execute(pinned(under_fathom(command, folder, ways), options.cores), options.out / "log.txt")
        if outcome.status:
            sys.exit(f"{options.program} failed: see {options.out / 'log.txt'}")
        phases = sorted({row["phase"] for row in records(folder) if row.get("t") == "phase"})
        row = {"program": options.program, "sham": options.sham, "device": device_name(), "phases": phases}
        row |= json.loads(times.read_text())
        append(options.out / LINES, row, shown=False)
        print(f"run {number}: {Ratio.of([row]) if quads(row) else 'too short'}", flush=True)


class Quad(NamedTuple):
    """Steps of two stretches with Fathom and of the two without beside them, in seconds."""

    on: list[float]
    off: list[float]

    @property
    def log_ratio(self) -> float:
        return math.log(statistics.fmean(self.on) / statistics.fmean(self.off))


def quads(row: dict[str, Any]) -> list[Quad]:
    """The whole fours of stretches of a run. The steps after a switch count on neither side."""
    steps, on = row["steps_s"], row["on"]
    result = []
    for first in range(WARM_UP, len(steps) - 4 * STRETCH + 1, 4 * STRETCH):
        sides: dict[bool, list[float]] = {True: [], False: []}
        for begin in range(first, first + 4 * STRETCH, STRETCH):
            sides[on[begin]] += steps[begin + SKIPPED : begin + STRETCH]
        result.append(Quad(sides[True], sides[False]))
    return result


@dataclass
class Ratio:
    """Step time with Fathom over that without: the median over the fours of stretches, and their mean, which
    holds what is rare as well. The 95 % intervals come from drawing runs, and fours of each, anew."""

    fours: int
    without_ms: float
    ratio: float
    low: float
    high: float
    mean: float
    mean_low: float
    mean_high: float

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> Ratio:
        """Raises ValueError without whole fours."""
        runs = [result for row in rows if (result := quads(row))]
        if not runs:
            raise ValueError("no run is long enough for four stretches")
        without = 1e3 * statistics.median(step for run in runs for quad in run for step in quad.off)
        logs = [[quad.log_ratio for quad in run] for run in runs]
        return cls(sum(map(len, runs)), without, *bounds(logs, np.median), *bounds(logs, np.mean))


def bounds(runs: list[list[float]], middle: Callable[[Any], Any]) -> tuple[float, float, float]:
    """The middle of logarithms as a ratio, and its 95 % interval, from drawing runs and their values anew."""
    draw = np.random.default_rng(0)
    drawn = [
        middle(np.concatenate([draw.choice(runs[run], len(runs[run])) for run in chosen]))
        for chosen in draw.integers(len(runs), size=(RESAMPLES, len(runs)))
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    value, low, high = np.exp([middle(np.concatenate(runs)), low, high])
    return float(value), float(low), float(high)


def summary(options: argparse.Namespace) -> None:
    """Write what the runs in the output folder amount to."""
    groups: dict[tuple[str, bool, str], list[dict[str, Any]]] = {}
    for row in lines(options.out / LINES):
        groups.setdefault((row["program"], row["sham"], row["device"]), []).append(row)
    result = [
        {"program": program, "sham": sham, "device": name, "runs": len(runs)}
        | {"phases": sorted({phase for run in runs for phase in run["phases"]})}
        | asdict(Ratio.of(runs))
        | {"ratio_of_each_run": [round(Ratio.of([run]).ratio, 4) for run in runs]}
        for (program, sham, name), runs in groups.items()
    ]
    keep("stretches.json", result)


def add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", choices=["launch_bound"])
    parser.add_argument("--sham", action="store_true", help="Fathom is on in all stretches")


def add_record(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    parser.add_argument("--cores", help="run on these alone, as in 2-5")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("out/stretches"))


def add_child(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)


def main() -> None:
    run(__doc__, {record: add_record, summary: add_folder, child: add_child})


if __name__ == "__main__":
    main()
