"""Tune real programs twice: gain, proof, predicted share, budget, and whether winner and gain are the same.

    python -m benchmarks.tuning.programs OUT [--budget 10m] [--only NAME …] [--searches 1] [--gpus 0 …]

On a GPU, the tuned program is also compared with torch.compile alone, as it is and with autotuning. Needs the
extra `tune`, and quiet cores: under load, proofs are inconclusive. Programs that lack a package are left out,
with the reason. Results go to OUT/NAME-1.json and OUT/NAME-2.json, progress and recordings beside them, the
summary to OUT/tuning.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fathom.machine import inventory
from fathom.tuner.tuning import BEFORE

ROOT = Path(__file__).parents[2]
SEARCHES = 2
WITHIN = 0.1  # of the budget


@dataclass(frozen=True)
class Program:
    """A program in its folder, which is copied; `needs` are packages, `small` more words on a CPU."""

    folder: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    small: tuple[str, ...] = ()

    @property
    def lacking(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.needs if importlib.util.find_spec(package) is None]

    def command(self, on_gpu: bool) -> list[str]:
        return [sys.executable, *self.words, *(() if on_gpu else self.small)]


SMALL, HUB, JPEG = ("--small",), ("transformers",), ("timm", "PIL")
PROGRAMS = {
    "gpt": Program("examples", ("train_gpt.py", "--steps", "100000")),
    "recommender": Program("examples/clicks", ("train.py",)),
    "gan": Program("benchmarks/ordinary/programs", ("gan.py", "--steps", "100000")),
    "characters": Program("benchmarks/ordinary/programs", ("characters.py", "--steps", "100000")),
    "lightning": Program(
        "benchmarks/ordinary/programs", ("lightning_fit.py", "--steps", "100000"), ("lightning",)
    ),
    "unet": Program("benchmarks/tuning/models", ("unet.py", "--steps", "100000"), ("lightning",)),
    "resnet": Program("benchmarks/tuning/models", ("resnet.py", "--steps", "100000"), ("timm",)),
    "tables": Program("benchmarks/tuning/models", ("tables.py", "--steps", "100000")),
    "frames": Program("benchmarks/tuning/models", ("frames.py", "--steps", "100000")),
    "answers": Program("benchmarks/tuning/models", ("answers.py", "--steps", "100000"), HUB),
    "timm-jpeg": Program(
        "benchmarks/programs", ("timm_jpeg.py", "--steps", "100000"), ("timm", "PIL"), SMALL
    ),
    "generate": Program("benchmarks/programs", ("generate.py", "--steps", "100000"), HUB, SMALL),
    "gpt2": Program("benchmarks/programs", ("gpt2.py", "--steps", "100000"), HUB, SMALL),
    "trainer": Program("benchmarks/programs", ("hf_trainer.py", "--steps", "100000"), HUB, SMALL),
    "diffusion": Program("benchmarks/unrelated", ("diffusion.py", "--steps", "100000"), ("PIL",), SMALL),
    "speech": Program("benchmarks/unrelated", ("speech.py", "--steps", "100000"), (), SMALL),
    "particles": Program("benchmarks/ordinary/programs", ("particles.py", "--steps", "100000")),
    "ranking": Program("benchmarks/unrelated", ("ranking.py", "--steps", "100000"), (), SMALL),
}
COMPILED = {"compiled": "whole", "graphs": "whole with CUDA graphs", "autotuned": "whole with autotuning"}


def tuned(
    name: str,
    program: Program,
    budget: str,
    out: Path,
    search: int,
    gpus: Sequence[str] = (),
    around: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Run one search in a copy of the program's folder, and return its result."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(ROOT / program.folder, place, dirs_exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "fathom",
            "tune",
            "--budget",
            budget,
            "--seed",
            str(search),
            "--json",
        ]
        command += [word for lane in gpus for word in ("--gpus", lane)]
        command += ["--", *program.command(on_gpu(around))]
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), around.get("PYTHONPATH"))))
        environment = {**around, "PYTHONPATH": path}
        said = out / f"{name}-{search}.txt"
        with said.open("w") as progress:
            done = subprocess.run(
                command,
                cwd=place,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=progress,
                text=True,
                check=False,
            )
        for recording in Path(place).glob(f"*.tune/{BEFORE}"):
            kept = out / f"{name}-{search}.fathom"
            shutil.copytree(recording, kept, ignore=shutil.ignore_patterns("raw"), dirs_exist_ok=True)
    if not done.stdout.strip():
        return {"failed": (said.read_text().strip().splitlines() or ["no message"])[-1]}
    (out / f"{name}-{search}.json").write_text(done.stdout)
    return json.loads(done.stdout)


def on_gpu(around: Mapping[str, str]) -> bool:
    """Return whether a program sees a GPU in this environment."""
    return bool(inventory().get("gpus")) and around.get("CUDA_VISIBLE_DEVICES") != ""


def row(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a program's searches."""
    if failed := next((result["failed"] for result in results if "failed" in result), None):
        return {"failed": failed}
    winners = [sorted((s["knob"], s["value"]) for s in result["settings"]) for result in results]
    return {
        "ratios": [_ratio(result) for result in results],
        "intervals": [(result["verdict"] or {}).get("interval") for result in results],
        "settings": winners,
        "same_winner": all(winner == winners[0] for winner in winners),
        "same_gain": same_gain(results),
        "predicted": [_predicted(result["settings"]) for result in results],
        "within_budget": [result["seconds"] <= (1 + WITHIN) * result["budget_s"] for result in results],
        "seconds": [result["seconds"] for result in results],
        "load_per_core": [result["load"] for result in results],
        "beside": [beside(result) for result in results],
    }


def beside(result: dict[str, Any]) -> dict[str, Any]:
    """Return the ratio of the tuned step to that under torch.compile alone, by mode, and a run's seconds."""
    known = {row["choice"].get("compile"): row for row in result["tried"] if len(row["choice"]) == 1}
    rows = {name: known[value] for name, value in COMPILED.items() if value in known}
    return {
        name: {
            "status": row["status"],
            "ratio": None if row["gain"] is None else _ratio(result) / (1 - row["gain"]),
            "seconds": row["seconds"],
        }
        for name, row in rows.items()
    }


def same_gain(results: list[dict[str, Any]]) -> bool:
    """Return whether the searches agree within their noise: the intervals of all proven ratios overlap."""
    intervals = [result["verdict"]["interval"] if result["settings"] else [1.0, 1.0] for result in results]
    return max(low for low, _ in intervals) <= min(high for _, high in intervals)


def _ratio(result: dict[str, Any]) -> float:
    """Return the proven ratio; 1 if nothing was proven."""
    verdict = result["verdict"]
    return verdict["ratio"] if result["settings"] and verdict["verdict"] == "faster" else 1.0


def _predicted(settings: list[dict[str, Any]]) -> float | None:
    """Return the share of the realised gain that findings and account predicted."""
    gains = [(s["predicted"] or 0.0, s["realised"]) for s in settings if (s["realised"] or 0) > 0]
    total = sum(realised for _, realised in gains)
    return sum(min(pair) for pair in gains) / total if total else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--searches", type=int, default=SEARCHES)
    parser.add_argument("--only", nargs="*", default=[], choices=list(PROGRAMS))
    parser.add_argument("--gpus", nargs="*", default=[], help="lanes that try candidates side by side")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Any] = {}
    for name in options.only or PROGRAMS:
        program = PROGRAMS[name]
        searches = range(1, options.searches + 1)
        results = [
            tuned(name, program, options.budget, options.out, number, options.gpus)
            for number in (() if program.lacking else searches)
        ]
        rows[name] = row(results) if results else {"failed": f"needs {', '.join(program.lacking)}"}
        print(name, json.dumps(rows[name]), flush=True)
    summarise(rows, options.out)


def summarise(rows: dict[str, Any], out: Path) -> None:
    """Write the rows by program and the geometric mean of the speed-ups of their first searches."""
    logs = [math.log(ratio) for known in rows.values() for ratio in known.get("ratios", [])[:1]]
    mean = math.exp(-sum(logs) / len(logs)) if logs else None
    summary = {"geometric_mean_speed_up": mean, "programs": rows}
    (out / "tuning.json").write_text(json.dumps(summary, indent=1))
    print(f"geometric mean of the speed-up: {mean}")


if __name__ == "__main__":
    main()
