"""Runs of the programs: unrecorded ones, whose steps are timed, and recorded ones, which are examined."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ordinary.labels import FAULTY, FORMS, MENDED, Label

SOURCE = Path(__file__).parents[2] / "src"
WARMUP = 0.2  # of the steps are left out
RECORDED_STEPS = 400
LIMIT_S = 300
WORKERS, ONE_BY_ONE = "input-too-few-workers", "input-sample-by-sample"
LARGE = 0.03  # of the step


class ProgramError(RuntimeError):
    """A program did not run to its end."""


@dataclass
class Outcome:
    """Medians of unrecorded steps in ms, one a run, and the examination of the recorded run, by form.

    `remedies` are the medians of a form that follows a finding's remedy, by "FORM KIND".
    """

    label: Label
    clean: dict[str, list[float]] = field(default_factory=lambda: {form: [] for form in FORMS})
    examined: dict[str, dict[str, Any]] = field(default_factory=dict)
    remedies: dict[str, list[float]] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """One thread of BLAS and OpenMP, so that two processes do not fight for two cores."""
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def outcome(label: Label, keep: Path, pairs: int) -> Outcome:
    """Run both forms in turn, `pairs` times unrecorded and once recorded, then what the findings advise."""
    seen = Outcome(label)
    for turn in range(pairs):
        for form in FORMS if turn % 2 == 0 else reversed(FORMS):
            seen.clean[form].append(clean_ms(label, form))
            if turn == 0:
                seen.examined[form] = examined(label, form, keep)
    for form in FORMS:
        follow(seen, form, pairs)
    return seen


def follow(seen: Outcome, form: str, pairs: int) -> None:
    """Do what large findings of this form advise about its loader; other causes the mended form mends."""
    for finding in seen.examined[form]["findings"]:
        said = advised(finding) if (finding["share"] or 0) >= LARGE else []
        if said:
            seen.remedies[f"{form} {finding['id']}"] = [
                clean_ms(seen.label, form, *said) for _ in range(pairs)
            ]


def advised(finding: dict[str, Any]) -> list[str]:
    """The options of a program that do what a finding's remedy says; [] where there are none."""
    if finding["id"] == ONE_BY_ONE:
        return ["--whole-batches"]
    if finding["id"] != WORKERS:
        return []
    number = re.search(r"num_workers=(\d+)", finding["remedy"])
    return ["--workers", number[1] if number else str(len(os.sched_getaffinity(0)))]


def clean_ms(label: Label, form: str, *more: str) -> float:
    """Median of an unrecorded run's steps after the first fifth."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder, "times.json")
        _run(label.command(form, "--times", str(times), *more))
        steps = json.loads(times.read_text())
    return 1e3 * statistics.median(steps[int(len(steps) * WARMUP) :])


def examined(label: Label, form: str, keep: Path) -> dict[str, Any]:
    """Record a form and examine it; the sounding stays in the folder `keep`."""
    sounding = keep / f"{label.name}-{form}.fathom"
    shutil.rmtree(sounding, ignore_errors=True)
    options = ["--no-measure", "--quiet", "--stop-after", "recorded", "-o", str(sounding)]
    command = label.command(form, "--steps", str(RECORDED_STEPS))
    _run([sys.executable, "-m", "fathom", "run", *options, "--", *command])
    return json.loads(_run([sys.executable, "-m", "fathom", "report", "--json", str(sounding)]))


def _run(command: list[str]) -> str:
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{' '.join(command)}: not finished after {LIMIT_S} s") from error
    if done.returncode not in (0, 143):  # 143: --stop-after ended it
        raise ProgramError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


__all__ = ["FAULTY", "LARGE", "MENDED", "Outcome", "ProgramError", "outcome"]
