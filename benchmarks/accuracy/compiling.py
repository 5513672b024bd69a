"""Gain of torch.compile, against what `framework-not-compiled` predicts from the eager recording alone.

    python -m benchmarks.accuracy.compiling record OUT --minutes 4  # on the target
    python -m benchmarks.accuracy.compiling score OUT               # here

`record` first compiles all programs side by side, which fills the compiler's cache. It then records the eager
steps of each and times both forms in turns, in the same process (`in_turns.py`). It needs numpy and torch
alone. `score` also takes the parts of a tar that `benchmarks/on_target.sh compiled OUT` leaves;
it writes `results/compiling.json`, and with `--keep` the soundings to tests/data/compiling.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.eager_part import cut
from benchmarks.cost.launcher import ROOT, execute, script, start, under_fathom

RESULT = ROOT / "benchmarks" / "results" / "compiling.json"
KEPT = ROOT / "tests" / "data" / "compiling"
KIND = "framework-not-compiled"
EAGER, TIMES = "eager.fathom", "turns.json"  # of a program
EAGER_STEPS = 690  # before the first turn (in_turns.EAGER): a few of its last calls are left out
IN_TURNS = Path(__file__).with_name("in_turns.py")
AT_ONCE = 5  # compilations: each has its own processes
COMPILE_S = 150  # for all of them
RUN_S = 120  # for one recording and its turns
RESAMPLES = 4000
WORTH = 0.03  # of the step: a program that gains less has no gain that could be predicted
RECORDED = ("--no-measure", "--depth", "timeline", "--replace", "-q")


@dataclass(frozen=True)
class Program:
    name: str
    file: str
    arguments: tuple[str, ...] = ()

    def compiled(self, more: list[str]) -> list[str]:
        """The command of a few compiled steps."""
        return [sys.executable, str(script(self.file)), *self.arguments, "--steps", "4", "--compile", *more]

    def in_turns(self, times: Path, options: argparse.Namespace) -> list[str]:
        """The command of both forms in turns."""
        given = [*self.arguments, "--steps", str(options.steps), *options.more]
        return [sys.executable, str(IN_TURNS), str(times), self.file, *given]


PROGRAMS = (
    Program("train_gpt", "train_gpt"),
    Program("launch_bound", "launch_bound"),
    *(
        Program(task, "ordinary", (task,))
        for task in (
            "vision",
            "convolutions",
            "ranking",
            "speech",
            "table",
            "diffusion",
            "messages",
            "language",
        )
    ),
)


def record(options: argparse.Namespace) -> int:
    """Record every program in turns, and leave OUT/NAME.tar.gz of each; 1 where one is missing."""
    options.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((options.folder / "cache").resolve()))
    programs = [item for item in PROGRAMS if not options.only or item.name in options.only]
    fill_cache(programs, options)
    missing = 0
    for program in programs:
        if time.monotonic() > until:
            print(f"{program.name}: no time is left", flush=True)
            missing += 1
        elif not (options.folder / f"{program.name}.tar.gz").exists():
            missing += not record_one(program, options)
    return int(missing > 0)


def fill_cache(programs: list[Program], options: argparse.Namespace) -> None:
    """Compile all programs, AT_ONCE side by side."""
    begun, waiting, running = time.monotonic(), list(programs), {}
    while (waiting or running) and time.monotonic() - begun < COMPILE_S:
        while waiting and len(running) < AT_ONCE:
            item = waiting.pop(0)
            log = options.folder / f"{item.name}-compile.txt"
            running[item.name] = start(item.compiled(options.more), log)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            print(f"{name}: compiled, status {running.pop(name).returncode}", flush=True)
        time.sleep(0.2)
    for process in running.values():
        process.kill()
        process.wait()
    print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)


def record_one(program: Program, options: argparse.Namespace) -> bool:
    """Record a program in turns, as an archive; False, with the end of its log, where that fails."""
    folder = options.folder / program.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = program.in_turns(folder / TIMES, options)
    under = ["timeout", str(RUN_S), *under_fathom(command, folder / EAGER, list(RECORDED))]
    log = folder / "log.txt"
    outcome = execute(under, log)
    print(f"{program.name}: status {outcome.status}, {outcome.wall_s:.0f} s", flush=True)
    if outcome.status:
        print("\n".join(log.read_text(errors="replace").splitlines()[-8:]), flush=True)
        return False
    with tarfile.open(options.folder / f"{program.name}.tar.gz", "w:gz", compresslevel=6) as tar:
        tar.add(folder, program.name)
    shutil.rmtree(folder)
    return True


def score(options: argparse.Namespace) -> int:
    """Examine the recording of each program, write the figures, print a table."""
    join(options.folder)
    rows = [scored(archive, options.keep) for archive in sorted(options.folder.glob("*.tar.gz"))]
    result = summary([row for row in rows if row is not None])
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    return 0


def join(folder: Path) -> None:
    """Unpack the parts of a tar that lie in `folder`, if there are any."""
    parts = sorted(folder.glob("compiled.tar.*"))
    if parts:
        text = b"".join(part.read_bytes() for part in parts)
        with tarfile.open(fileobj=io.BytesIO(text)) as tar:
            tar.extractall(folder, filter="data")


def scored(archive: Path, keep: bool) -> dict[str, Any] | None:
    """A row: what was predicted of the eager recording, and what compiling gained in turns.

    None where the step time settled too late for a recording before the first turn.
    """
    name = archive.name.removesuffix(".tar.gz")
    shutil.rmtree(archive.parent / name, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(archive.parent, filter="data")
    folder = archive.parent / name
    if keep:
        kept(name, folder / EAGER)
    eager = examined(folder / EAGER)
    if not eager["step"]["clean_ms"]:
        print(f"{name}: no eager steps were recorded before the first turn")
        return None
    return row(name, eager, json.loads((folder / TIMES).read_text()))


def examined(sounding: Path) -> dict[str, Any]:
    """The JSON report of raw records, of its eager steps."""
    fathom = [sys.executable, "-m", "fathom"]
    if not list(sounding.glob("rank-*/*.parquet")):
        cut(sounding / "raw", EAGER_STEPS)
        subprocess.run([*fathom, "import", str(sounding)], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([*fathom, "report", "--json", str(sounding)], check=True, capture_output=True)
    return json.loads(done.stdout)


def kept(name: str, sounding: Path) -> None:
    """The sounding without its raw records, packed."""
    KEPT.mkdir(parents=True, exist_ok=True)
    into = KEPT / f"{name}.fathom.zip"
    into.unlink(missing_ok=True)
    command = [sys.executable, "-m", "fathom", "pack", str(sounding), "-o", str(into)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def row(name: str, eager: dict[str, Any], turns: list[list[float]]) -> dict[str, Any]:
    """Steps in ms: `clean_ms` is the recording's, the others medians of turns; `place` counts from 1."""
    ids = [item["id"] for item in eager["findings"]]
    place = ids.index(KIND) + 1 if KIND in ids else None
    finding = eager["findings"][place - 1] if place else {}
    gains = np.array([before - after for before, after in turns])
    drawn = np.median(np.random.default_rng(0).choice(gains, (RESAMPLES, len(gains))), axis=1)
    return {
        "program": name,
        "clean_ms": eager["step"]["clean_mean_ms"] or eager["step"]["clean_ms"],
        "eager_ms": statistics.median(before for before, _ in turns),
        "compiled_ms": statistics.median(after for _, after in turns),
        "gained_ms": float(np.median(gains)),
        "gained_interval_ms": [round(float(edge), 3) for edge in np.percentile(drawn, [2.5, 97.5])],
        "place": place,
        "predicted_ms": finding.get("gain_ms"),
        "low_ms": finding.get("low_ms"),
        "high_ms": finding.get("high_ms"),
        "findings": [(item["id"], item["gain_ms"]) for item in eager["findings"]],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The error is of the gain, over programs that gain WORTH of their step; no finding predicts nothing."""
    worth = [item for item in rows if item["gained_ms"] >= WORTH * item["eager_ms"]]
    errors = [abs((item["predicted_ms"] or 0.0) / item["gained_ms"] - 1) for item in worth]
    stated = [item for item in rows if item["low_ms"] is not None]
    inside = [item["low_ms"] <= item["gained_ms"] <= item["high_ms"] for item in stated]
    return {
        "programs": len(rows),
        "gained": len(worth),
        "median_error": statistics.median(errors) if errors else None,
        "inside": sum(inside) / len(inside) if inside else None,
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    lines = [f"{'program':14}{'eager':>8}{'compiled':>9}{'gained':>8}  predicted (interval), place"]
    for item in result["rows"]:
        said = "none"
        if item["place"]:
            said = (
                f"{item['predicted_ms']:.2f} ({item['low_ms']:.2f} to {item['high_ms']:.2f}), {item['place']}"
            )
        figures = (item["eager_ms"], item["compiled_ms"], item["gained_ms"])
        lines.append(f"{item['program']:14}" + "".join(f"{ms:8.2f} " for ms in figures) + f" {said}")
    error, inside = (result[name] for name in ("median_error", "inside"))
    if error is not None:
        lines.append(f"median error {error:.0%} of {result['gained']} gains")
    if inside is not None:
        lines.append(f"outcomes inside their interval {inside:.0%}")
    return "\n".join(lines)


def bench() -> str:
    """The figures that were kept, as a table."""
    if not RESULT.exists():
        return f"No figures in {RESULT}: `benchmarks/on_target.sh compiled OUT` records the programs."
    return table(json.loads(RESULT.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for command in (record, score):
        sub = commands.add_parser(command.__name__, help=(command.__doc__ or "").splitlines()[0])
        sub.set_defaults(command=command)
        sub.add_argument("folder", type=Path)
        if command is score:
            sub.add_argument("--keep", action="store_true", help="keep the soundings for tests")
            continue
        sub.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(p.name for p in PROGRAMS))
        sub.add_argument("--minutes", type=float, default=4.0, help="start no recording after them")
        sub.add_argument("--steps", type=int, default=4000, help="at most; the turns end the program")
        sub.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="options of the programs")
    options = parser.parse_args()
    raise SystemExit(options.command(options))


if __name__ == "__main__":
    main()
