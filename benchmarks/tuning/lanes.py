"""Tune programs side by side, each search on cores or a GPU for itself, and compare them with torch.compile.

    python -m benchmarks.tuning.lanes OUT [--budget 480] [--cpu NAME …] [--gpu NAME …] [--gpus 0 1] …

Every program is searched twice, with different seeds. Each GPU is a lane with its own cores; the others are
lanes for searches without a GPU. A free lane takes the next search: first ones before second ones, long ones
before short ones. With --compare, the program also runs after its first search as it is, tuned, under
torch.compile and with max-autotune, in turns, for as many seconds. Results are those of
`benchmarks.tuning.programs`, and OUT/NAME-forms.json; all are written when they are known, so the command may
be ended at any time, and searches with a result in OUT are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from threading import Lock
from time import monotonic, strftime
from typing import Any

from benchmarks.tuning.programs import PROGRAMS, ROOT, row, summarise, tuned
from fathom.recorder import Applied
from fathom.tuner.running import Run, Runner, Steps
from fathom.tuner.sandbox import Scratch

CPU = ("gpt", "unet", "timm-jpeg", "recommender", "speech", "generate")
GPU = ("gpt", "tables", "resnet", "answers", "unet", "frames")
SEARCHES = (1, 2)
GPUS, CPUS = "gpu", "cpu"  # folders of results
MEASURE = "hbm,matmul"  # ceilings that findings on a GPU need
MEASURE_S = 100
LONGER = 1.6  # factor of a budget that was too short
STEPS = Steps(warm=10, counted=100)
COMPILED = {
    "torch.compile": Applied(acts={"compile": {}}),
    "max-autotune": Applied(acts={"compile": {"mode": "max-autotune"}}),
}
Job = tuple[str, int]  # program, and number of its search
Rows = dict[str, list[dict[str, Any]]]  # of runs by form


class Results:
    """The results of searches by program, on disk as soon as they are known."""

    def __init__(self, out: Path) -> None:
        self.out, self._lock = out, Lock()
        self._known: dict[str, dict[int, dict[str, Any]]] = {}
        self._forms: dict[str, Any] = {}
        out.mkdir(parents=True, exist_ok=True)

    def add(self, job: Job, result: dict[str, Any]) -> None:
        with self._lock:
            self._known.setdefault(job[0], {})[job[1]] = result
            self._write()

    def compare(self, name: str, rows: Rows) -> None:
        """Keep how the forms of a program compare."""
        with self._lock:
            self._forms[name] = compared(rows)
            self._write()

    def _write(self) -> None:
        each = {name: row([known[n] for n in sorted(known)]) for name, known in self._known.items()}
        known = {name: {"forms": self._forms[name]} for name in each if name in self._forms}
        summarise({name: about | known.get(name, {}) for name, about in each.items()}, self.out)


@dataclass(frozen=True)
class Lane:
    """Cores, and a GPU or none, on which searches follow each other."""

    name: str
    cores: frozenset[int]
    gpus: tuple[str, ...]
    out: Path

    @property
    def around(self) -> dict[str, str]:
        """The environment of its programs."""
        home = {"FATHOM_HOME": str(self.out / f"home-{self.name}")}
        return {**os.environ, **home, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus), **self.cache("search")}

    def cache(self, name: str) -> dict[str, str]:
        """Return a folder for compiled kernels, which lanes share."""
        return {"TORCHINDUCTOR_CACHE_DIR": str(self.out / f"kernels-{name}")}

    def run(self, jobs: deque[Job], budgets: Budgets, compare_s: float, results: Results) -> None:
        """Run searches while there are any, and compare each program once after its first one."""
        os.sched_setaffinity(0, self.cores)  # of this thread, and the programs that it starts
        if self.gpus:
            self._measure()
        while jobs:
            name, number = jobs.popleft()
            try:
                result = self._tuned(name, number, budgets.of(name))
            except Exception as error:  # other programs go on
                result = {"failed": repr(error)}
            results.add((name, number), result)
            say(f"{name} {number}: {result.get('failed') or labels(result)}")
            if compare_s and number == SEARCHES[0]:
                self._compare(name, result, compare_s, results)

    def _compare(self, name: str, result: dict[str, Any], seconds: float, results: Results) -> None:
        try:
            results.compare(name, Forms(self, name, result).run(seconds))
        except Exception as error:  # other programs go on
            say(f"forms of {name}: {error!r}")

    def _tuned(self, name: str, number: int, budget_s: float) -> dict[str, Any]:
        """Search once unless there is a result; where a run takes too long, with a longer budget."""
        earlier = self.out / f"{name}-{number}.json"
        if earlier.exists():
            return json.loads(earlier.read_text())
        for factor in (1.0, LONGER):
            budget = f"{factor * budget_s:.0f}s"
            say(f"{name} {number} on {self.name}, {budget}")
            result = tuned(name, PROGRAMS[name], budget, self.out, number, around=self.around)
            if "budget is too short" not in result.get("failed", ""):
                break
            say(f"{name} {number}: {result['failed']}")
        return result

    def _measure(self) -> None:
        command = [sys.executable, "-m", "fathom", "machine", "measure", "--only", MEASURE, "--json"]
        with (self.out / f"machine-{self.name}.json").open("w") as file:
            try:
                subprocess.run(command, env=self.around, stdout=file, timeout=MEASURE_S, check=False)
            except subprocess.TimeoutExpired:
                say(f"{self.name}: ceilings were not measured in {MEASURE_S} s")


def say(text: str) -> None:
    print(strftime("%H:%M:%S"), text, flush=True)


def labels(result: dict[str, Any]) -> str:
    """Return the settings of a result and their ratio, in one line."""
    names = ", ".join(f"{setting['knob']}: {setting['value']}" for setting in result["settings"])
    interval = (result["verdict"] or {}).get("interval")
    return f"{names or 'nothing proven'}, ratio {interval}, {result['runs']} runs, {result['seconds']:.0f} s"


@dataclass(frozen=True)
class Budgets:
    """Seconds of each search: the program's own, or those of every program."""

    every_s: float
    by_name: Mapping[str, float]

    def of(self, name: str) -> float:
        return self.by_name.get(name, self.every_s)

    def jobs(self, names: Sequence[str]) -> deque[Job]:
        """Return the searches in the order in which lanes take them."""
        able = sorted((name for name in names if not PROGRAMS[name].lacking), key=lambda name: -self.of(name))
        return deque((name, number) for number in SEARCHES for name in able)


def lanes_of(
    out: Path, gpus: Sequence[str], width: int, cores: Iterable[int], cpu_width: int | None = None
) -> list[Lane]:
    """Return a lane for each GPU with `width` cores, and for each `cpu_width` of the other cores."""
    left, lanes = sorted(cores), []
    for gpu in gpus[: len(left) // width]:
        lanes.append(Lane(f"gpu-{gpu}", frozenset(left[:width]), (gpu,), out / GPUS))
        left = left[width:]
    each = cpu_width or width
    parts = [frozenset(left[first : first + each]) for first in range(0, len(left) - each + 1, each)]
    return [*lanes, *(Lane(f"cpu-{min(part)}", part, (), out / CPUS) for part in parts)]


class Forms:
    """A program as it is, tuned and compiled. Compiled forms have empty caches before their first run."""

    def __init__(self, lane: Lane, name: str, result: dict[str, Any]) -> None:
        self.lane, self.name, self.program = lane, name, PROGRAMS[name]
        known = {part: result.get(part) or {} for part in ("environment", "acts", "arguments")}
        tuned_form = {"tuned": Applied(**known)} if any(known.values()) else {}
        self.every = {"as it is": Applied(), **tuned_form, **COMPILED}

    def run(self, seconds: float) -> Rows:
        """Run the forms in turns until the seconds are over; each form's first run may take as many."""
        until, rows = monotonic() + seconds, Rows({form: [] for form in self.every})
        with tempfile.TemporaryDirectory() as place:
            scratch = Scratch(ROOT / self.program.folder, Path(place, "copy"))
            command = self.program.command(bool(self.lane.gpus))
            runner = Runner(command, scratch, Path(place), STEPS, environment=self.lane.around)
            while monotonic() < until or not all(rows.values()):
                for form, setting in self.every.items():
                    left_s = max(until - monotonic(), 0.0 if rows[form] else seconds)
                    if left_s:
                        rows[form].append(about(runner.run(self._cached(form, setting), left_s)))
                        self._write(rows)
        say(f"forms of {self.name}: {json.dumps(compared(rows))}")
        return rows

    def _cached(self, form: str, setting: Applied) -> Applied:
        if form not in COMPILED:
            return setting  # those of the search, which a user would have
        return replace(setting, environment=self.lane.cache(f"{self.name}-{form}"))

    def _write(self, rows: Rows) -> None:
        (self.lane.out / f"{self.name}-forms.json").write_text(json.dumps(rows, indent=1))


def about(run: Run) -> dict[str, Any]:
    """Return the figures of a run: `start_s` is the time to its first timed step."""
    ms = run.step_ns / 1e6 if run.samples else None
    start_s = None if ms is None else run.seconds - STEPS.counted * ms / 1e3
    return {"status": run.status, "ms": ms, "start_s": start_s, "seconds": run.seconds, "why": run.why}


def compared(rows: Rows) -> dict[str, Any]:
    """Return each form's step and first start, and the ratio of the tuned step to it."""
    ms = {form: median(known) for form, runs in rows.items() if (known := [r["ms"] for r in runs if r["ms"]])}
    tuned_ms = ms.get("tuned", ms.get("as it is"))
    return {
        form: {
            "ms": ms.get(form),
            "ratio": tuned_ms / ms[form] if tuned_ms and form in ms else None,
            "first_start_s": runs[0]["start_s"],
            "first_s": runs[0]["seconds"],
            "status": runs[-1]["status"],
        }
        for form, runs in rows.items()
        if runs
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", type=float, default=480, help="seconds of each search")
    parser.add_argument(
        "--cpu-budget", type=float, help="seconds of each search without a GPU (default: --budget)"
    )
    parser.add_argument(
        "--longer",
        nargs="*",
        default=[],
        metavar="NAME=S",
        help="seconds of each search of these programs on a GPU",
    )
    parser.add_argument("--cpu", nargs="*", default=CPU, choices=list(PROGRAMS))
    parser.add_argument("--gpu", nargs="*", default=GPU, choices=list(PROGRAMS))
    parser.add_argument("--gpus", nargs="*", default=())
    parser.add_argument("--width", type=int, default=4, help="cores of a lane")
    parser.add_argument("--cpu-width", type=int, help="cores of a lane without a GPU (default: --width)")
    parser.add_argument("--compare", type=float, default=0, help="seconds for tuned and compiled forms")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    cores = os.sched_getaffinity(0)
    lanes = lanes_of(out, options.gpus, options.width, cores, options.cpu_width)
    if not lanes:
        parser.error(f"there are fewer than {options.width} cores; give a smaller --width")
    if options.cpu and options.gpus and all(lane.gpus for lane in lanes):
        parser.error("no cores are left for --cpu; give a smaller --width, or --cpu without names")
    longer = {name: float(seconds) for name, _, seconds in (each.partition("=") for each in options.longer)}
    on_gpu, on_cpu = Budgets(options.budget, longer), Budgets(options.cpu_budget or options.budget, {})
    parts = ((GPUS, on_gpu, options.gpu), (CPUS, on_cpu, options.cpu))
    with ThreadPoolExecutor(len(lanes)) as pool:
        running = []
        for part, budgets, names in parts:
            jobs, results = budgets.jobs(names), Results(out / part)
            mine = [lane for lane in lanes if bool(lane.gpus) == (part == GPUS)]
            running += [pool.submit(lane.run, jobs, budgets, options.compare, results) for lane in mine]
        for each in running:
            each.result()


if __name__ == "__main__":
    main()
