"""Memory that sampling counters adds to a program, and whether it grows, over minutes of bursts.

    python benchmarks/cost/counters_memory.py record train_gpt --seconds 120 --out out/memory  # on the target
    python benchmarks/cost/counters_memory.py tell RECORDING --out out/memory  # of one that is there
    python benchmarks/cost/counters_memory.py summary out/memory

`record` has the known counters sampled over and over, and stops the program after that time. Resident memory
is the telemetry's; before the last trace without counters it is the program's and the other phases' own. Kept
are the most that was added to that, and how fast what is held between bursts grows over the last four fifths
of the time: the least in each tenth of it, for the share of the time in which bursts are decoded differs.
Needs qualified counters (`fathom machine measure --only counters`) and no table library. What follows `--`
goes to the program.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cost_commands import add_folder, append, device_name, keep, lines, run
from launcher import records, script, start, under_fathom

HOST = -1  # the telemetry's device
SETTLED_SHARE = 0.2  # of the time with bursts, before which caches and pools still grow
PARTS = 10
START_S, END_S = 60.0, 60.0  # until the first burst, and until records are written
STEPS = "100000"  # more than there is time for
LINES = "memory.jsonl"


def record(options: argparse.Namespace) -> None:
    """Record the program for so many seconds of bursts, and keep what its memory did."""
    options.out.mkdir(parents=True, exist_ok=True)
    folder, log = options.out / f"{options.program}.fathom", options.out / "log.txt"
    shutil.rmtree(folder, ignore_errors=True)
    program = [sys.executable, str(script(options.program)), "--steps", STEPS, *options.arguments]
    with many_rounds(10_000):
        process = start(
            under_fathom(program, folder, ["--depth", "counters", "--no-measure"]), log, session=True
        )
        try:
            process.wait(START_S + options.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
        process.wait(END_S)
    if not (folder / "raw").exists():
        sys.exit(f"{options.program} failed: see {log}")
    row = measured(folder)
    if row["seconds"] < options.seconds:
        sys.exit(f"there were only {row['seconds']:.0f} s of bursts: see {log}")
    append(options.out / LINES, {"program": options.program, "device": device_name()} | row)


def tell(options: argparse.Namespace) -> None:
    """Keep what a recording says that was made otherwise."""
    options.out.mkdir(parents=True, exist_ok=True)
    for folder in options.recordings:
        append(options.out / LINES, {"program": folder.stem, "device": options.device} | measured(folder))


def measured(folder: Path) -> dict[str, Any]:
    """Bytes before bursts with counters began, at most more than that since, and how fast it grew."""
    begun, ended = sampling_ns(folder)
    said = (row for row in lines(folder / "raw" / "telemetry.jsonl") if row.get("device") == HOST)
    values = [(row["time_ns"], row["memory_bytes"]) for row in said if row.get("memory_bytes")]
    before = max(own for ns, own in values if ns <= begun)
    since = [(ns, own) for ns, own in values if begun < ns <= ended]
    most = max(own for _, own in since)
    return {
        "seconds": (ended - begun) / 1e9,
        "before_bytes": before,
        "added_bytes": most - before,
        "slope_bytes_per_s": slope(since, begun + int(SETTLED_SHARE * (ended - begun)), ended),
    }


def slope(values: list[tuple[int, int]], begin: int, end: int) -> float:
    """Bytes a second by which the least of each part of the time grows."""
    each = (end - begin) / PARTS
    parts: dict[int, list[int]] = {}
    for ns, own in values:
        if begin <= ns < end:
            parts.setdefault(int((ns - begin) / each), []).append(own)
    return statistics.linear_regression(
        [part * each / 1e9 for part in parts], [min(own) for own in parts.values()]
    ).slope


def sampling_ns(folder: Path) -> tuple[int, int]:
    """From the end of the last trace without counters to the end of the last burst with them."""
    said = records(folder)
    bursts = [row for row in said if row.get("t") == "samples"]
    if not bursts:
        sys.exit(f"{folder} has no bursts with counters")
    first = min(row["start_ns"][0] for row in bursts)
    traced = (row["stop_ns"] for row in said if row.get("t") == "trace" and row["stop_ns"] < first)
    return max(traced, default=first), max(row["stop_ns"][1] + row["decode_ns"] for row in bursts)


@contextmanager
def many_rounds(count: int) -> Iterator[None]:
    """Meanwhile the remembered counters are sampled `count` times over."""
    from fathom.machine import known_machine
    from fathom.machine.store import place

    file = place(known_machine()["fingerprint"])
    before = file.read_text() if file.exists() else sys.exit("qualify the counters of this machine first")
    machine = json.loads(before)
    machine["counters"]["rounds"] = count
    file.write_text(json.dumps(machine))
    try:
        yield
    finally:
        file.write_text(before)


def summary(options: argparse.Namespace) -> None:
    """Write what the runs in the output folder say."""
    keep("counters_memory.json", lines(options.out / LINES))


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", help="of benchmarks/programs or examples, with --steps")
    parser.add_argument("--seconds", type=float, default=120.0, help="of bursts")
    parser.add_argument("--out", type=Path, default=Path("out/memory"))


def add_tell(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", nargs="+", type=Path, help="raw, as fathom run --raw leaves them")
    parser.add_argument("--device", default=device_name(), help="the device of the recordings")
    parser.add_argument("--out", type=Path, default=Path("out/memory"))


def main() -> None:
    run(__doc__, {record: add_record, tell: add_tell, summary: add_folder})


if __name__ == "__main__":
    main()
