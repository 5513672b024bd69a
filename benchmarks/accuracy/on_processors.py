"""Gains of torch.compile and of a fused Adam on a CPU, against what the eager recording predicts.

    python -m benchmarks.accuracy.on_processors record OUT [--only NAME …]  # 13 minutes on two cores
    python -m benchmarks.accuracy.on_processors score OUT                   # writes results/processors.json

`record` runs each small program under `fathom run`, then eagerly and compiled in turns in one process
(`in_turns.py`), then with torch's default and the fused optimizer in turns, each in a separate process: OUT
gets NAME.fathom, NAME.json with pairs of mean steps in ms, and NAME-optimizer.json with pairs of the median
time in `optimizer.step()` and of the median step. Gains are shares of the step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.cost.launcher import ROOT, script

RESULT = ROOT / "benchmarks" / "results" / "processors.json"
TASKS = ("language", "ranking", "vision", "table", "diffusion", "messages", "convolutions", "speech")
COMPILED, LOOP = "framework-not-compiled", "kernels-for-loop-optimizer"
STEPS, PATIENCE_S, PAIRS = "600", 240, 3
FORMS = ("loop", "fused")
Command = Callable[[argparse.Namespace], None]
HERE = Path(__file__).parent


def record(options: argparse.Namespace) -> None:
    """Record the programs and time their forms; what is there already is kept."""
    out = options.folder.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(out / "cache"))
    os.environ |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))), "EAGER": "20"}
    for name in options.only or TASKS:
        words, sounding = [name, "--small", "--steps"], out / f"{name}.fathom"
        if not sounding.exists():
            program = [sys.executable, str(script("ordinary")), *words, STEPS]
            run("-m", "fathom", "run", "-q", "--no-measure", "-o", str(sounding), "--", *program)
        if not (times := out / f"{name}.json").exists():
            run(str(HERE / "in_turns.py"), str(times), "ordinary", *words, "100000")
        if not (times := out / f"{name}-optimizer.json").exists():
            file = str(HERE / "optimizer_steps.py")
            pairs = [[run(file, form, "ordinary", *words, STEPS) for form in FORMS] for _ in range(PAIRS)]
            times.write_text(json.dumps([[json.loads(text) for text in pair] for pair in pairs]))
        print(name, flush=True)


def run(*words: str) -> str:
    """Run Python with these words, and return the last line that it prints."""
    command = [sys.executable, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
    return (done.stdout.strip().splitlines() or [""])[-1]


def score(options: argparse.Namespace) -> None:
    """Compare predicted and measured gains, print a table and write the result."""
    rows = [row for name in TASKS for row in scored(options.folder, name)]
    errors = [abs(row["predicted"] / row["gained"] - 1) for row in rows if row["gained"] >= 0.05]
    inside = [row["low"] <= row["gained"] <= row["high"] for row in rows if row["predicted"]]
    result = {"median_error": statistics.median(errors), "inside": statistics.mean(inside), "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        said = f"{row['predicted']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        print(f"{row['program']:13}{row['remedy']:15}{row['gained']:6.2f}  {said}")
    print(f"median error {result['median_error']:.0%}, inside their interval {result['inside']:.0%}")


def scored(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return a row for each remedy of a program that was measured."""
    text = run("-m", "fathom", "report", "--json", str(folder / f"{name}.fathom"))
    step, findings = (json.loads(text)[part] for part in ("step", "findings"))
    gains = {}
    if (times := folder / f"{name}.json").exists():
        gains["compiled", COMPILED] = [1 - then / now for now, then in json.loads(times.read_text())]
    if (times := folder / f"{name}-optimizer.json").exists():
        pairs = json.loads(times.read_text())
        gains["fused Adam", LOOP] = [(loop[0] - fused[0]) / loop[1] for loop, fused in pairs]
    return [
        {"program": name, "remedy": remedy, "gained": statistics.median(mine)}
        | predicted(findings, kind, step)
        for (remedy, kind), mine in gains.items()
    ]


def predicted(findings: list[dict[str, Any]], kind: str, step: dict[str, Any]) -> dict[str, float]:
    """Return the gain of this kind's finding alone and its interval as shares of the step, 0 without one."""
    finding = next((row for row in findings if row["id"] == kind), {})
    parts = {"predicted": "alone_ms", "low": "low_ms", "high": "high_ms"}
    return {name: (finding.get(part) or 0.0) / step["clean_mean_ms"] for name, part in parts.items()}


def main(description: str | None, tasks: Iterable[str], record: Command, score: Command) -> None:
    """Run `record FOLDER [--only TASK …]` or `score FOLDER`, as the command line says."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for command in (record, score):
        sub = commands.add_parser(command.__name__, help=(command.__doc__ or "").splitlines()[0])
        sub.set_defaults(command=command)
        sub.add_argument("folder", type=Path)
        if command is record:
            sub.add_argument("--only", nargs="+", choices=list(tasks))
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main(__doc__, TASKS, record, score)
