"""Tune programs side by side, each search on cores or a GPU for itself, then compare them with torch.compile.

    python -m benchmarks.tuning.lanes OUT [--minutes 8] [--cpu NAME …] [--gpu NAME …] [--gpus 0 1] [--width 4]

Every program is searched twice, with different seeds. Each GPU is a lane with its own cores; the others are
lanes for searches without a GPU. The searches of a lane share its minutes. Afterwards each GPU program runs
as it is, tuned, under torch.compile and with max-autotune, in turns, for --compare seconds, and --both
seconds are for one search on two GPUs. Results are those of `benchmarks.tuning.programs`, and
OUT/NAME-forms.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, strftime
from typing import Any

from benchmarks.tuning.programs import PROGRAMS, ROOT, row, summarise, tuned
from fathom.recorder import Applied
from fathom.tuner.running import Runner, Steps
from fathom.tuner.sandbox import Scratch

CPU = ("gpt", "unet", "timm-jpeg", "recommender", "speech", "generate")
GPU = ("gpt", "unet")
SEARCHES = (1, 2)
MEASURE = "hbm,matmul"  # ceilings that findings on a GPU need
MEASURE_S = 100
COMPILED = {
    "torch.compile": Applied(acts={"compile": {}}),
    "max-autotune": Applied(acts={"compile": {"mode": "max-autotune"}}),
}
Job = tuple[str, int]  # program, and number of its search
Results = dict[str, dict[int, dict[str, Any]]]  # of searches by program


@dataclass(frozen=True)
class Lane:
    """Cores, and a GPU or none, on which searches follow each other."""

    name: str
    cores: frozenset[int]
    gpus: tuple[str, ...]
    out: Path
    jobs: list[Job] = field(default_factory=list)

    @property
    def around(self) -> dict[str, str]:
        """The environment of its programs."""
        home = {"FATHOM_HOME": str(self.out / f"home-{self.name}")}
        return {**os.environ, **home, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}

    def occupy(self) -> None:
        """Keep this thread, and the programs that it starts, to the lane's cores."""
        os.sched_setaffinity(0, self.cores)

    def search(self, minutes: float) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Run the searches, which share the minutes."""
        self.occupy()
        if self.gpus:
            self._measure()
        for name, number in self.jobs:
            budget = f"{60 * minutes / len(self.jobs):.0f}s"
            say(f"{name} {number} on {self.name}, {budget}")
            try:
                result = tuned(name, PROGRAMS[name], budget, self.out, number, around=self.around)
            except Exception as error:  # other lanes go on
                result = {"failed": repr(error)}
            say(f"{name} {number}: {result.get('failed') or labels(result)}")
            yield (name, number), result

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
    return f"{names or 'nothing proven'}, ratio {(result['verdict'] or {}).get('interval')}"


def lanes_of(out: Path, gpus: Sequence[str], width: int, cores: Iterable[int]) -> list[Lane]:
    """Return a lane for each GPU, and for each `width` of the other cores."""
    left = sorted(cores)
    parts = [frozenset(left[first : first + width]) for first in range(0, len(left) - width + 1, width)]
    on_gpu = [Lane(f"gpu-{gpu}", part, (gpu,), out) for gpu, part in zip(gpus, parts, strict=False)]
    return [*on_gpu, *(Lane(f"cpu-{min(part)}", part, (), out) for part in parts[len(on_gpu) :])]


def share(lanes: Sequence[Lane], names: Sequence[str]) -> None:
    """Give the searches of the programs to the lanes in turn."""
    jobs = [(name, number) for number in SEARCHES for name in names if not PROGRAMS[name].lacking]
    for number, job in enumerate(jobs if lanes else ()):
        lanes[number % len(lanes)].jobs.append(job)


def searched(lanes: Sequence[Lane], minutes: float) -> Results:
    """Run all lanes at the same time, and return the results."""
    results: Results = {}
    with ThreadPoolExecutor(len(lanes)) as pool:
        for done in pool.map(lambda lane: list(lane.search(minutes)), lanes):
            for (name, number), result in done:
                results.setdefault(name, {})[number] = result
    return results


def forms(lane: Lane, name: str, result: dict[str, Any], seconds: float) -> None:
    """Time a program as it is, tuned and compiled, in turns; the first run of a form may compile."""
    lane.occupy()
    until, program = monotonic() + seconds, PROGRAMS[name]
    known = {part: result.get(part) or {} for part in ("environment", "acts", "arguments")}
    every = {
        "as it is": Applied(),
        **({"tuned": Applied(**known)} if any(known.values()) else {}),
        **COMPILED,
    }
    rows: dict[str, list[dict[str, Any]]] = {form: [] for form in every}
    with tempfile.TemporaryDirectory() as place:
        scratch = Scratch(ROOT / program.folder, Path(place, "copy"))
        command = program.command(bool(lane.gpus))
        runner = Runner(command, scratch, Path(place), Steps(warm=10, counted=100), environment=lane.around)
        while monotonic() < until:
            for form, setting in every.items():
                run = runner.run(setting, max(0.0, until - monotonic()))
                ms = run.step_ns / 1e6 if run.samples else None
                rows[form].append({"status": run.status, "ms": ms, "seconds": run.seconds, "why": run.why})
    (lane.out / f"{name}-forms.json").write_text(json.dumps(rows, indent=1))
    say(f"forms of {name}: { ({form: [r['ms'] for r in runs] for form, runs in rows.items()}) }")


def both(lanes: Sequence[Lane], name: str, seconds: float) -> None:
    """Search once with the candidates side by side on the GPUs of all these lanes."""
    gpus = tuple(gpu for lane in lanes for gpu in lane.gpus)
    lane = Lane("gpus", frozenset().union(*(lane.cores for lane in lanes)), gpus, lanes[0].out)
    lane.occupy()
    result = tuned(name, PROGRAMS[name], f"{seconds:.0f}s", lane.out, 3, gpus, lane.around)
    tried = len(result.get("tried", []))
    say(f"{name} on {len(gpus)} GPUs: {result.get('failed') or labels(result)}, {tried} tried")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--cpu", nargs="*", default=CPU, choices=list(PROGRAMS))
    parser.add_argument("--gpu", nargs="*", default=GPU, choices=list(PROGRAMS))
    parser.add_argument("--gpus", nargs="*", default=())
    parser.add_argument("--width", type=int, default=4, help="cores of a lane")
    parser.add_argument("--compare", type=float, default=0, help="seconds for tuned and compiled forms")
    parser.add_argument("--both", type=float, default=0, help="seconds for a search on two GPUs")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    lanes = lanes_of(out, options.gpus, options.width, os.sched_getaffinity(0))
    on_gpu, on_cpu = ([lane for lane in lanes if bool(lane.gpus) == wanted] for wanted in (True, False))
    share(on_gpu, options.gpu)
    share(on_cpu, options.cpu)
    with ThreadPoolExecutor(2) as pool:
        cpu = pool.submit(group, on_cpu, options.minutes, out / "cpu")
        gpu = pool.submit(afterwards, on_gpu, options)
        for each in (cpu, gpu):
            each.result()


def group(lanes: Sequence[Lane], minutes: float, out: Path) -> Results:
    """Run the searches of these lanes, and write their summary."""
    lanes = [lane for lane in lanes if lane.jobs]
    results = searched(lanes, minutes) if lanes else {}
    out.mkdir(exist_ok=True)
    summarise({name: row(list(known.values())) for name, known in results.items()}, out)
    return results


def afterwards(lanes: Sequence[Lane], options: argparse.Namespace) -> None:
    """Run the searches on GPUs, then the other forms of their programs, and a search on two GPUs."""
    if not lanes:
        return
    results = group(lanes, options.minutes, lanes[0].out / "gpu")
    compared = zip(lanes, results.items() if options.compare else (), strict=False)
    with ThreadPoolExecutor(len(lanes)) as pool:
        running = [
            pool.submit(forms, lane, name, known[1], options.compare) for lane, (name, known) in compared
        ]
        free = lanes[len(running) :]
        if options.both and len(free) > 1:
            running.append(pool.submit(both, free[:2], options.gpu[0], options.both))
        for each in running:
            each.result()
    if options.both and len(free) < 2 <= len(lanes):
        both(lanes[:2], options.gpu[0], options.both)


if __name__ == "__main__":
    main()
