"""What recording costs: a program untouched against the same program recorded, in pairs that take turns.

    python benchmarks/cost.py pairs train_gpt --depth surface --pairs 10 --out out/cost
    python benchmarks/cost.py pairs launch_bound --pairs 40 --cores 2-5 6-9 10-13 14-17 --gpus 0,1 --minutes 5
    python benchmarks/cost.py memory --out out/cost
    python benchmarks/cost.py summary out/cost

Both programs of a pair run at the same time on the same cores, each stopped for a quarter of a second while
the other goes on; the pairs begin with either by turns. Step times are the program's own (`--times`).

Most of a pair is the start of its programs, so several sets of cores have as many pairs under way, dealt out
to the GPUs in turn. One pair of a GPU takes its turns at a time; the others wait for that, stopped. What
starts and ends meanwhile has cores of its own, but the same GPU: it disturbs both sides of the pair alike.
`--minutes` begins no pair after so long. A pair that fails, Ctrl-C or SIGTERM ends all that was started.

`surface` compares the steps of the clean phase, `timeline` the profiled ones. It needs no library but
Python's, numpy and psutil, and `summary` writes `results/cost.json`. What follows `--` goes to the program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from cost_pairs import FailedError, Place, compared, core_numbers, places, run_all, side_by_side
from launcher import RECORDING, ROOT, execute, started_by

RESULTS = ROOT / "benchmarks" / "results"
SETTLE = 40
PHASES = {"surface": "clean", "timeline": "timeline"}
RESAMPLES = 10_000


def pairs(options: argparse.Namespace) -> None:
    """Run the pairs, and append one line a pair to the output folder's `pairs.jsonl`."""
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    numbers = iter(takewhile(lambda _: time.monotonic() < until, range(options.pairs)))
    done: list[int] = []
    device = device_name()

    async def work(number: int, place: Place) -> None:
        row = {"program": options.program, "depth": options.depth, "pair": number}
        append(options.out / "pairs.jsonl", row | await pair(options, number, place) | {"device": device})
        done.append(number)

    try:
        asyncio.run(run_all(places(options.out, options.cores, options.gpus), numbers, work))
    except FailedError as error:
        sys.exit(f"{options.program}: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("stopped")
    if len(done) < options.pairs:
        print(f"{options.pairs - len(done)} of {options.pairs} pairs are left", file=sys.stderr)


async def pair(options: argparse.Namespace, number: int, place: Place) -> dict[str, Any]:
    """What one pair tells: steps that count, both medians, their ratio, the place. Raises FailedError."""
    recorded = ["--no-measure", "--depth", options.depth, "--settle", str(SETTLE), "--steps", "40"]
    sides = await side_by_side(options.program, options.arguments, recorded, place, number % 2)
    try:
        plain, with_fathom, count = compared(*sides, PHASES[options.depth])
    except FailedError as error:
        raise FailedError(f"{error}: see {place.folder}") from None
    where = {name: value for name, value in (("cores", place.cores), ("gpu", place.gpu)) if value}
    figures = {"untouched_ms": 1e3 * plain, "recorded_ms": 1e3 * with_fathom, "ratio": with_fathom / plain}
    return {"steps": count, **figures, **where}


def memory(options: argparse.Namespace) -> None:
    """Peak resident memory of `many_events` untouched and with its timeline recorded, alternately."""
    options.out.mkdir(parents=True, exist_ok=True)
    recorded = ["--no-measure", "--depth", "timeline", "--settle", "10", "--steps", "6"]
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


def core_set(word: str) -> str:
    """A set of cores as `taskset` takes it."""
    if not core_numbers(word):
        raise ValueError
    return word


def gpus(words: str) -> list[str]:
    """GPUs as CUDA_VISIBLE_DEVICES takes them; an empty one would hide all."""
    found = words.split(",")
    if not all(found) or len(set(found)) < len(found):
        raise ValueError
    return found


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
        if command is pairs:
            sub.add_argument(
                "--cores", type=core_set, nargs="+", default=[], help="pairs on each, as in 2-5 6-9"
            )
            sub.add_argument("--gpus", type=gpus, default=[], help="pairs on each, as in 0,1")
            sub.add_argument("--minutes", type=float, default=1e9, help="begin no pair after so long")
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
