"""Cost of recording: a program against the same program recorded, in pairs that take turns.

    python benchmarks/cost/cost.py pairs train_gpt --depth surface --pairs 10 --out out/cost
    python benchmarks/cost/cost.py pairs launch_bound --pairs 40 --batch 8 --cores 0-3 4-7 --gpus 0,1 \\
        --minutes 6
    python benchmarks/cost/cost.py memory --out out/cost
    python benchmarks/cost/cost.py summary out/cost

Both programs of a pair take turns on the same cores, each stopped for a quarter of a second while the other
goes on; the pairs begin with either by turns. Step times are the program's own (`--times`).

Most of a pair is the start of its programs, so `--batch` starts several pairs on each GPU together, dealt out
to the GPUs and to the sets of cores in turn. Whoever has begun is stopped until all have; then the pairs of
each GPU take their turns one after the other while all else is silent, and they end together. `--minutes`
begins no batch that would end later, were it as long as the last. A pair that fails, Ctrl-C or SIGTERM
ends all. A program that does not say when it begins (`train_gpt`) takes no turns, and needs batches of one.

A pair has two ratios: `ratio` of the medians of both whole runs, and `ratio_of_turns`, the median over the
recorded turns of the median step over the mean of those in the untouched turns before and after.
`steps.jsonl` keeps all step times.

`surface` compares the steps of the clean phase, `timeline` the profiled ones. It needs no library but
Python's, numpy and psutil, and `summary` writes `results/cost.json`. What follows `--` goes to the program.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cost_commands import add_folder, append, device_name, keep, lines, run
from cost_pairs import FailedError, Place, Places, compared, core_numbers, run_batch
from launcher import RECORDING, execute, started_by
from turn_ratio import Run

SETTLE = 40
PHASES = {"surface": "clean", "timeline": "timeline"}
RESAMPLES = 10_000


def pairs(options: argparse.Namespace) -> None:
    """Run the pairs, and append one line a pair to the output folder's `pairs.jsonl`."""
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        done = asyncio.run(run_batches(options))
    except FailedError as error:
        sys.exit(f"{options.program}: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("stopped")
    if done < options.pairs:
        print(f"{options.pairs - done} of {options.pairs} pairs are left", file=sys.stderr)


async def run_batches(options: argparse.Namespace) -> int:
    """How many pairs were done in the time. Raises FailedError."""
    # Of the loop, not of Python: a handler that runs between any two instructions cancels timers half done.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asyncio.current_task().cancel)
    places = Places(options.out, options.cores, options.gpus, options.batch)
    done = 0
    for numbers in in_time(places.batches(options.pairs), 60 * options.minutes):
        await run_one_batch(options, {number: places[number] for number in numbers})
        done += len(numbers)
    return done


def in_time(batches: Iterable[range], seconds: float) -> Iterator[range]:
    """The batches that end in the time, if each takes as long as the one before."""
    until, took_s = time.monotonic() + seconds, 0.0
    for batch in batches:
        begin = time.monotonic()
        if begin + took_s >= until:
            return
        yield batch
        took_s = time.monotonic() - begin


async def run_one_batch(options: argparse.Namespace, places: dict[int, Place]) -> None:
    recorded = ["--no-measure", "--depth", options.depth, "--settle", str(SETTLE), "--steps", "40"]
    result = await run_batch(options.program, options.arguments, recorded, list(places.values()))
    device = device_name()
    for (number, place), (untouched, with_fathom) in zip(places.items(), result, strict=True):
        row = {"program": options.program, "depth": options.depth, "pair": number}
        said = figures(untouched, with_fathom, PHASES[options.depth], place)
        append(options.out / "pairs.jsonl", row | said | {"device": device})
        sides = {"untouched": asdict(untouched), "recorded": asdict(with_fathom)}
        append(options.out / "steps.jsonl", row | sides, shown=False)


def figures(untouched: Run, recorded: Run, phase: str, place: Place) -> dict[str, Any]:
    """The result of one pair, and its place. Raises FailedError."""
    try:
        said = compared(untouched, recorded, phase)
    except FailedError as error:
        raise FailedError(f"{error}: see {place.folder}") from None
    where = {name: value for name, value in (("cores", place.cores), ("gpu", place.gpu)) if value}
    return said._asdict() | where


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


@dataclass
class Ratio:
    """Ratio of step times, recorded over untouched: median over pairs, with its 95 % bootstrap interval."""

    pairs: int
    ratio: float
    low: float
    high: float


@dataclass
class Cost(Ratio):
    """The results of one program's pairs; `ratio_of_turns` is of those pairs that took turns."""

    program: str
    depth: str
    device: str
    untouched_ms: float
    ratio_of_turns: Ratio | None


def cost_of(rows: list[dict[str, Any]]) -> Cost:
    first = rows[0]
    plain = statistics.median(row["untouched_ms"] for row in rows)
    of_turns = [row["ratio_of_turns"] for row in rows if row.get("ratio_of_turns") is not None]
    return Cost(
        *astuple(ratio_of([row["ratio"] for row in rows])),
        *(first["program"], first["depth"], first["device"], plain),
        ratio_of(of_turns) if of_turns else None,
    )


def ratio_of(ratios: list[float]) -> Ratio:
    resampled = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    return Ratio(len(ratios), statistics.median(ratios), float(low), float(high))


def summary(options: argparse.Namespace) -> None:
    """Write what the lines in the output folder amount to."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in lines(options.out / "pairs.jsonl"):
        groups.setdefault((row["program"], row["depth"], row["device"]), []).append(row)
    rises = [row["recorded_bytes"] - row["untouched_bytes"] for row in lines(options.out / "memory.jsonl")]
    result = {
        "step_time": [asdict(cost_of(rows)) for rows in groups.values()],
        "memory": {"pairs": len(rises), "largest_rise_bytes": max(rises, default=None), "rises_bytes": rises},
    }
    keep("cost.json", result)


def at_least_one(word: str) -> int:
    if (count := int(word)) < 1:
        raise ValueError
    return count


def core_set(word: str) -> str:
    """A set of cores as `taskset` takes it."""
    if not core_numbers(word):
        raise ValueError
    return word


def gpus(words: str) -> list[str]:
    """GPUs as CUDA_VISIBLE_DEVICES takes them; an empty one would hide all."""
    result = words.split(",")
    if not all(result) or len(set(result)) < len(result):
        raise ValueError
    return result


def add_pairs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", choices=["train_gpt", "launch_bound"])
    parser.add_argument("--depth", choices=list(PHASES), default="surface")
    parser.add_argument("--batch", type=at_least_one, default=1, help="pairs that start together on each GPU")
    parser.add_argument("--cores", type=core_set, nargs="+", default=[], help="sets of cores, as in 2-5 6-9")
    parser.add_argument("--gpus", type=gpus, default=[], help="pairs on each, as in 0,1")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no batch that would end later")
    add_runs(parser)


def add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/cost"))


def main() -> None:
    run(__doc__, {pairs: add_pairs, memory: add_runs, summary: add_folder})


if __name__ == "__main__":
    main()
