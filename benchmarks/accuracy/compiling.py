"""Gain of torch.compile, against what `framework-not-compiled` predicts from the eager recording alone.

    python -m benchmarks.accuracy.compiling record OUT --minutes 4  # on the target
    python -m benchmarks.accuracy.compiling score OUT [OUT ...]     # here
    python -m benchmarks.accuracy.compiling parts OUT               # here, for tests/data/compiling.json.gz

`record` first compiles all programs side by side, which fills the compiler's cache. It then records the
eager steps of each, and times both forms in turns in the same process; with TRACES=1 it traces a few steps
of both (`in_turns.py`). It needs numpy and torch alone. `score` also takes the parts of a tar that
`benchmarks/on_target.sh compiled OUT` leaves, and several folders; it writes `results/compiling.json`. A
host's speed differs between the recording and the turns, so gains are compared as shares of the step, and
in milliseconds besides. `parts` keeps a step's kernels, as the model of the compiler sees them, with what
the traces of both forms show.
"""

from __future__ import annotations

import argparse
import gzip
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
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fathom
from benchmarks.accuracy.eager_part import cut
from benchmarks.accuracy.in_turns import TRACED
from benchmarks.cost.launcher import ROOT, execute, script, start, under_fathom

RESULT = ROOT / "benchmarks" / "results" / "compiling.json"
KEPT = ROOT / "tests" / "data" / "compiling.json.gz"
KIND = "framework-not-compiled"
EAGER, TIMES = "eager.fathom", "turns.json"  # of a program
TRACES = ("eager.json.gz", "compiled.json.gz")
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
    """Examine the recordings of the programs, write the figures, print a table."""
    rows = [scored(archive) for archive in archives(options.folders)]
    kept = json.loads(RESULT.read_text())["rows"] if options.add else []
    result = summary(kept + [row for row in rows if row is not None])
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))
    return 0


def archives(folders: list[Path]) -> list[Path]:
    """The archives of the programs, unpacked from the parts of a tar where need be."""
    for folder in folders:
        join(folder)
    return [archive for folder in folders for archive in sorted(folder.glob("*.tar.gz"))]


def join(folder: Path) -> None:
    """Unpack the parts of a tar that lie in `folder`, if there are any."""
    parts = sorted(folder.glob("compiled.tar.*"))
    if parts:
        text = b"".join(part.read_bytes() for part in parts)
        with tarfile.open(fileobj=io.BytesIO(text)) as tar:
            tar.extractall(folder, filter="data")


def scored(archive: Path) -> dict[str, Any] | None:
    """A row: what was predicted of the eager recording, and what compiling gained in turns.

    None where the step time settled too late for a recording before the first turn.
    """
    folder = unpacked(archive)
    eager = examined(folder / EAGER)
    if not eager["step"]["clean_ms"]:
        print(f"{folder.name}: no eager steps were recorded before the first turn")
        return None
    return row(folder.name, eager, json.loads((folder / TIMES).read_text()))


def unpacked(archive: Path) -> Path:
    """The folder of a program's archive, anew."""
    folder = archive.parent / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(archive.parent, filter="data")
    return folder


def examined(sounding: Path) -> dict[str, Any]:
    """The JSON report of raw records, of its eager steps."""
    fathom = [sys.executable, "-m", "fathom"]
    if not list(sounding.glob("rank-*/*.parquet")):
        cut(sounding / "raw", EAGER_STEPS)
        subprocess.run([*fathom, "import", str(sounding)], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([*fathom, "report", "--json", str(sounding)], check=True, capture_output=True)
    return json.loads(done.stdout)


def parts(options: argparse.Namespace) -> int:
    """Keep what the model knows of an eager step's kernels, and what traces of both forms show."""
    kept = {}
    for archive in archives(options.folders):
        folder = unpacked(archive)
        if all((folder / trace).exists() for trace in TRACES):
            examined(folder / EAGER)
            kept[folder.name] = eager_step(folder / EAGER) | traced(folder)
    KEPT.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    print(f"{KEPT.relative_to(ROOT)}: {', '.join(kept)}")
    return 0


def eager_step(sounding: Path) -> dict[str, Any]:
    """The kernels of a step in the middle of the timeline, and what generated kernels reach on this GPU."""
    model = import_module("fathom.diagnosis.signals.eager")
    os.environ["FATHOM_NO_CACHE"] = "1"
    with mock.patch.object(model, "fuse", wraps=model.fuse) as fused:
        fathom.open(sounding).findings  # noqa: B018
    every, reach = fused.call_args.args
    windows = sorted({part.window for part in every})
    step = [part for part in every if part.window == windows[len(windows) // 2]]
    shown = [part._replace(label=part.label[:40], source=None, module=None)._asdict() for part in step]
    return {"reach": reach._asdict(), "parts": shown}


def traced(folder: Path) -> dict[str, Any]:
    """The busy milliseconds of an eager and a compiled step, and the number of generated kernels."""
    busy: list[float] = []
    for trace in TRACES:
        events = json.loads(gzip.decompress((folder / trace).read_bytes()))["traceEvents"]
        work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        busy.append(sum(event["dur"] for event in work) / 1e3 / TRACED)
        names = [event["name"] for event in work if event["cat"] == "kernel"]
    generated = sum(name.startswith("triton") for name in names) / TRACED
    return {"busy_ms": busy, "generated": generated}


def row(name: str, eager: dict[str, Any], turns: list[list[float]]) -> dict[str, Any]:
    """Steps in ms: `clean_ms` is the recording's, the others medians of turns; `place` counts from 1."""
    ids = [item["id"] for item in eager["findings"]]
    place = ids.index(KIND) + 1 if KIND in ids else None
    finding = eager["findings"][place - 1] if place else {}
    gains = np.array([before - after for before, after in turns])
    drawn = np.median(np.random.default_rng(0).choice(gains, (RESAMPLES, len(gains))), axis=1)
    shares = [1 - after / before for before, after in turns]
    clean = eager["step"]["clean_mean_ms"] or eager["step"]["clean_ms"]
    return {
        "program": name,
        "clean_ms": clean,
        "eager_ms": statistics.median(before for before, _ in turns),
        "compiled_ms": statistics.median(after for _, after in turns),
        "gained_ms": float(np.median(gains)),
        "gained_interval_ms": [round(float(edge), 3) for edge in np.percentile(drawn, [2.5, 97.5])],
        "gained": statistics.median(shares),
        "predicted": finding["gain_ms"] / clean if finding else None,
        "place": place,
        "predicted_ms": finding.get("gain_ms"),
        "low_ms": finding.get("low_ms"),
        "high_ms": finding.get("high_ms"),
        "findings": [(item["id"], item["gain_ms"]) for item in eager["findings"]],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of gains in programs that gain WORTH of their step; no finding predicts nothing."""
    worth = [item for item in rows if item["gained"] >= WORTH]
    errors = [abs((item["predicted"] or 0.0) / item["gained"] - 1) for item in worth]
    in_ms = [abs((item["predicted_ms"] or 0.0) / item["gained_ms"] - 1) for item in worth]
    stated = [item for item in rows if item["place"]]
    inside = [item["low_ms"] <= item["gained"] * item["clean_ms"] <= item["high_ms"] for item in stated]
    return {
        "recordings": len(rows),
        "gains": len(worth),
        "median_error": statistics.median(errors) if errors else None,
        "median_error_in_ms": statistics.median(in_ms) if in_ms else None,
        "inside": sum(inside) / len(inside) if inside else None,
        "stated": len(stated),
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    lines = [f"{'program':14}{'eager':>8}{'compiled':>9}{'gained':>8}{'':8}  predicted (interval), place"]
    for item in result["rows"]:
        said = "none"
        if item["place"]:
            interval = f"({item['low_ms']:.2f} to {item['high_ms']:.2f}), {item['place']}"
            said = f"{item['predicted_ms']:.2f} {item['predicted']:4.0%} {interval}"
        figures = (item["eager_ms"], item["compiled_ms"], item["gained_ms"])
        shown = "".join(f"{ms:8.2f} " for ms in figures)
        lines.append(f"{item['program']:14}{shown}{item['gained']:6.0%}   {said}")
    error, in_ms, inside = (result[name] for name in ("median_error", "median_error_in_ms", "inside"))
    if error is not None:
        lines.append(
            f"median error {error:.0%} of {result['gains']} gains as shares of the step, {in_ms:.0%} in ms"
        )
    if inside is not None:
        lines.append(f"{inside:.0%} of {result['stated']} gains as shares inside their interval")
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
    for command in (score, parts):
        sub = commands.add_parser(command.__name__, help=(command.__doc__ or "").splitlines()[0])
        sub.set_defaults(command=command)
        sub.add_argument("folders", type=Path, nargs="+")
        if command is score:
            sub.add_argument("--add", action="store_true", help="to the rows that are kept")
    sub = commands.add_parser("record", help=(record.__doc__ or "").splitlines()[0])
    sub.set_defaults(command=record)
    sub.add_argument("folder", type=Path)
    sub.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(p.name for p in PROGRAMS))
    sub.add_argument("--minutes", type=float, default=4.0, help="start no recording after them")
    sub.add_argument("--steps", type=int, default=4000, help="at most; the turns end the program")
    sub.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="options of the programs")
    options = parser.parse_args()
    raise SystemExit(options.command(options))


if __name__ == "__main__":
    main()
