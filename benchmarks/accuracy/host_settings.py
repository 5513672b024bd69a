"""Gains of keeping freed memory and of a loader without workers on a CPU, against the findings' predictions.

    python -m benchmarks.accuracy.host_settings record OUT [--only NAME …]  # 20 minutes, two cores
    python -m benchmarks.accuracy.host_settings score OUT  # writes results/host_settings.json

`record` runs each program under `fathom run`, then as it is and under the setting in turns, as a search does.
OUT gets NAME.fathom, and NAME.json with the milliseconds of a step by setting, in pairs. A setting applies if
its finding appears, or if the program has a loader with workers; the last rows show gains that no finding
predicts. Gains are shares of the step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.accuracy.on_processors import main, predicted, run
from benchmarks.cost.launcher import ROOT
from benchmarks.tuning.programs import PROGRAMS
from fathom.recorder import Applied
from fathom.tuner.knobs import catalogue
from fathom.tuner.running import Runner, Steps
from fathom.tuner.sandbox import Scratch

RESULT = ROOT / "benchmarks" / "results" / "host_settings.json"
MEMORY, WORKERS = "host-page-faults", "input-needless-workers"
TASKS = {
    "unet": (MEMORY,),
    "timm-jpeg": (MEMORY, WORKERS),
    "gpt": (MEMORY,),
    "diffusion": (MEMORY,),
    "characters": (MEMORY,),
    "speech": (MEMORY, WORKERS),
    "recommender": (MEMORY, WORKERS),
    "ranking": (MEMORY, WORKERS),
}
PAIRS, STEPS, PATIENCE_S = 3, Steps(warm=5, counted=60), 150


def applied(kind: str) -> Applied:
    """Return the first setting of the tuner's catalogue that realises this kind's remedy."""
    for knob in catalogue():
        for value in knob.values:
            if kind in (*knob.suggested_by, *value.suggested_by):
                return Applied(environment=dict(value.environment), acts=dict(value.acts))
    raise LookupError(kind)


def record(options: argparse.Namespace) -> None:
    """Record the programs, and run them under the settings; existing results are kept."""
    out = options.folder.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in options.only or TASKS:
        sounding, times = out / f"{name}.fathom", out / f"{name}.json"
        program = PROGRAMS[name]
        command = program.command(on_gpu=False)
        if not sounding.exists():
            words = (
                "run",
                "-q",
                "--no-measure",
                "--stop-after",
                "recorded",
                "-o",
                str(sounding),
                "--",
                *command,
            )
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
            started = [sys.executable, "-m", "fathom", *words]
            subprocess.run(started, cwd=ROOT / program.folder, env=environment, check=False, timeout=300)
        if not times.exists():
            with tempfile.TemporaryDirectory() as place:
                scratch = Scratch(ROOT / program.folder, Path(place, "copy"))
                runner = Runner(command, scratch, Path(place), STEPS)
                times.write_text(json.dumps({kind: pairs(runner, applied(kind)) for kind in TASKS[name]}))
        print(name, flush=True)


def pairs(runner: Runner, setting: Applied) -> list[list[float]]:
    """Return the milliseconds of a step as it is and under the setting, side by side."""
    forms = (Applied(), setting)
    return [[runner.run(form, PATIENCE_S).step_ns / 1e6 for form in forms] for _ in range(PAIRS)]


def score(options: argparse.Namespace) -> None:
    """Compare predicted and measured gains, print a table and write the result."""
    rows = [row for name in TASKS for row in scored(options.folder, name)]
    findings = [row for row in rows if row["predicted"]]
    result = {
        "median_error": statistics.median(
            abs(row["predicted"] - row["gained"]) / row["gained"] for row in findings
        ),
        "inside": statistics.mean(row["low"] <= row["gained"] <= row["high"] for row in findings),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        said = f"{row['predicted']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        measured = " ".join(f"{gain:.2f}" for gain in row["pairs"])
        print(f"{row['program']:13}{row['kind']:24}{row['gained']:6.2f} of {measured}  {said}")
    print(f"median error {result['median_error']:.0%}, inside their interval {result['inside']:.0%}")


def scored(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return a row for each setting of a program that was measured."""
    if not (times := folder / f"{name}.json").exists():
        return []
    text = run("-m", "fathom", "report", "--json", str(folder / f"{name}.fathom"))
    step, findings = (json.loads(text)[part] for part in ("step", "findings"))
    measured = {
        kind: [1 - then / now for now, then in each] for kind, each in json.loads(times.read_text()).items()
    }
    return [
        {"program": name, "kind": kind, "gained": statistics.median(gains), "pairs": gains}
        | predicted(findings, kind, step)
        for kind, gains in measured.items()
    ]


if __name__ == "__main__":
    main(__doc__, TASKS, record, score)
