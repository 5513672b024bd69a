"""What recording costs: a program untouched against the same program recorded, in pairs that take turns.

    python benchmarks/cost.py pairs train_gpt --depth surface --pairs 10 --out out/cost
    python benchmarks/cost.py memory --out out/cost
    python benchmarks/cost.py summary out/cost

Both programs of a pair run at the same time on the same cores, each stopped for a quarter of a second while
the other goes on; the pairs begin with either by turns. Step times are the program's own (`--times`).
`surface` compares the steps of the clean phase, `timeline` the profiled ones. It needs no library but
Python's, numpy and psutil, and `summary` writes `results/cost.json`. What follows `--` goes to the program.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from launcher import ROOT, execute, pinned, records, script, start, under_fathom
from turns import kill, take_turns

RESULTS = ROOT / "benchmarks" / "results"
WARM_UP = 60  # steps that are compared nowhere: compilation, caches, settling
SETTLE = 40
PHASES = {"surface": "clean", "timeline": "timeline"}
RESAMPLES = 10_000
RECORDING = "recording.fathom"


@dataclass
class Run:
    """One run of a program: its step times in seconds, and the phase of each step where it was recorded."""

    steps_s: list[float]
    phases: dict[int, str]


def side_by_side(options: argparse.Namespace, recorded: list[str], first: int) -> tuple[Run, Run]:
    """A program untouched and under Fathom, step by step in turns; `first` (0, 1) runs in the first turn.

    Stops on a failure.
    """
    folder = options.out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = [folder / "untouched.begun", folder / "recorded.begun"]
    programs: list[subprocess.Popen[bytes]] = []
    try:
        for ways, mark in zip((None, recorded), begun, strict=True):
            name = mark.stem
            arguments = [*options.arguments, "--times", str(folder / f"{name}.json")]
            command = started_by(options.program, arguments, folder, ways)
            command = pinned(command, options.cores)
            programs.append(start(command, folder / f"{name}.txt", BEGUN=str(mark)))
        order = slice(None, None, -1 if first else 1)
        take_turns(programs[order], begun[order])
    finally:
        kill(programs)
    for program, mark in zip(programs, begun, strict=True):
        if program.returncode:
            sys.exit(f"{options.program} failed: see {mark.with_suffix('.txt')}")
    steps = [json.loads(mark.with_suffix(".json").read_text())["steps_s"] for mark in begun]
    return Run(steps[0], {}), Run(steps[1], phases_of(records(folder / RECORDING)))


def started_by(program: str, arguments: list[str], folder: Path, recorded: list[str] | None) -> list[str]:
    """The command of a program: as it is, or with these options of `fathom run` into `folder`."""
    command = [sys.executable, str(script(program)), *arguments]
    return command if recorded is None else under_fathom(command, folder / RECORDING, recorded)


def phases_of(found: Iterable[dict[str, Any]]) -> dict[int, str]:
    """Phase of each step."""
    runs = (record for record in found if record.get("t") == "marks")
    return {run["k"] + place: run["phase"] for run in runs for place in range(len(run["ns"]))}


def compared(untouched: Run, recorded: Run, phase: str) -> tuple[float, float, int]:
    """Median step of both runs in seconds, where the recorded one was in `phase`, and their count.

    A mark may lie inside the program's own step, so a step counts only if the one before was there too.
    """
    last = min(len(untouched.steps_s), len(recorded.steps_s))
    chosen = [
        k for k in range(WARM_UP, last) if recorded.phases.get(k) == recorded.phases.get(k - 1) == phase
    ]
    if not chosen:
        sys.exit(f"no step after the first {WARM_UP} was recorded in the phase '{phase}'")
    plain = statistics.median(untouched.steps_s[WARM_UP:last])
    return plain, statistics.median(recorded.steps_s[k] for k in chosen), len(chosen)


def pairs(options: argparse.Namespace) -> None:
    """Run the pairs, and append one line a pair to the output folder's `pairs.jsonl`."""
    recorded = ["--depth", options.depth, "--settle", str(SETTLE), "--steps", "40"]
    options.out.mkdir(parents=True, exist_ok=True)
    for number in range(options.pairs):
        untouched, with_it = side_by_side(options, recorded, number % 2)
        plain, with_fathom, count = compared(untouched, with_it, PHASES[options.depth])
        row = {"program": options.program, "depth": options.depth, "pair": number, "steps": count}
        row |= {"untouched_ms": 1e3 * plain, "recorded_ms": 1e3 * with_fathom, "ratio": with_fathom / plain}
        row |= {"device": device_name()}
        append(options.out / "pairs.jsonl", row)


def memory(options: argparse.Namespace) -> None:
    """Peak resident memory of `many_events` untouched and with its timeline recorded, alternately."""
    options.out.mkdir(parents=True, exist_ok=True)
    recorded = ["--depth", "timeline", "--settle", "10", "--steps", "6"]
    for number in range(options.pairs):
        peaks = {}
        for name, ways in (("untouched", None), ("recorded", recorded)):
            command = started_by("many_events", options.arguments, options.out, ways)
            outcome = execute(command, options.out / "log.txt")
            if outcome.status:
                sys.exit(f"many_events failed: see {options.out / 'log.txt'}")
            shutil.rmtree(options.out / RECORDING, ignore_errors=True)
            peaks[name] = outcome.peak_bytes
        row = {
            "pair": number,
            **{f"{name}_bytes": peak for name, peak in peaks.items()},
            "device": device_name(),
        }
        append(options.out / "memory.jsonl", row)


def append(file: Path, row: dict[str, Any]) -> None:
    line = json.dumps(row)
    print(line, flush=True)
    with file.open("a") as out:
        out.write(line + "\n")


def device_name() -> str:
    """What the programs ran on, from the driver's own tool."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return "cpu"
    listed = subprocess.run(
        [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
    )
    return listed.stdout.splitlines()[0].strip() if listed.stdout.strip() else "cpu"


@dataclass
class Cost:
    """Ratio of step times, recorded over untouched: median over pairs, with its 95 % bootstrap interval."""

    program: str
    depth: str
    device: str
    pairs: int
    untouched_ms: float
    ratio: float
    low: float
    high: float


def cost_of(rows: list[dict[str, Any]]) -> Cost:
    ratios = np.array([row["ratio"] for row in rows])
    resampled = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    first = rows[0]
    plain = statistics.median(row["untouched_ms"] for row in rows)
    middle = float(np.median(ratios))
    return Cost(
        first["program"], first["depth"], first["device"], len(rows), plain, middle, float(low), float(high)
    )


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def summary(options: argparse.Namespace) -> None:
    """Write what the lines in the output folder amount to."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in lines(options.out / "pairs.jsonl"):
        groups.setdefault((row["program"], row["depth"], row["device"]), []).append(row)
    rises = [row["recorded_bytes"] - row["untouched_bytes"] for row in lines(options.out / "memory.jsonl")]
    found = {
        "step_time": [asdict(cost_of(rows)) for rows in groups.values()],
        "memory": {"pairs": len(rises), "largest_rise_bytes": max(rises, default=None), "rises_bytes": rises},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cost.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def split(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The words before `--`, itself, and those after it, as str.partition does."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for command, takes_program in ((pairs, True), (memory, False), (summary, False)):
        sub = commands.add_parser(command.__name__, help=(command.__doc__ or "").splitlines()[0])
        sub.set_defaults(command=command)
        if takes_program:
            sub.add_argument("program", choices=["train_gpt", "launch_bound"])
            sub.add_argument("--depth", choices=list(PHASES), default="surface")
            sub.add_argument("--cores", help="run on these alone, as in 2-5")
        if command is summary:
            sub.add_argument("out", type=Path)
            continue
        sub.add_argument("--pairs", type=int, default=10)
        sub.add_argument("--out", type=Path, default=Path("out/cost"))
    ours, _, arguments = split(sys.argv[1:])
    options = parser.parse_args(ours, argparse.Namespace(arguments=arguments))
    options.command(options)


if __name__ == "__main__":
    main()
