"""Runs the programs in `tests/programs` with the probe inside, as `fathom run` would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm
from tests.support.paths import PROGRAMS, SOURCE

INJECT = SOURCE / "fathom" / "probe" / "inject"


@dataclass
class Run:
    """A program that has ended, and what the probe left."""

    folder: Path
    status: int
    out: str
    err: str

    @property
    def raw(self) -> Path:
        return self.folder / "raw"

    @property
    def processes(self) -> list[list[dict[str, Any]]]:
        """The records of every process, those that ran steps first."""
        files = sorted(self.raw.glob("proc-*.jsonl"))
        result = [
            [record for line in file.read_text().splitlines() for record in _records(line)] for file in files
        ]
        return sorted(result, key=lambda records: -sum(r["t"] == "mark" for r in records))

    def runs(self) -> list[list[dict[str, Any]]]:
        """The lines of every process as they were written."""
        files = sorted(self.raw.glob("proc-*.jsonl"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Records of one kind in the process that ran most steps."""
        return [record for record in self.processes[0] if record["t"] == kind] if self.processes else []

    @property
    def marks(self) -> list[dict[str, Any]]:
        """Marks of the final clock."""
        first = self.of("clock")[-1]["k"]
        return [record for record in self.of("mark") if record["k"] >= first]

    @property
    def phases(self) -> Counter[str]:
        return Counter(mark["phase"] for mark in self.marks)

    @property
    def kinds(self) -> Counter[str]:
        """Kinds of the steps that have both ends."""
        return Counter(mark["kind"] for mark in self.marks[1:])

    def traces(self) -> list[dict[str, Any]]:
        return [json.loads((self.raw / record["file"]).read_text()) for record in self.of("trace")]


def _records(line: str) -> list[dict[str, Any]]:
    """The records of a line: runs of marks and tables of batches hold several."""
    record = json.loads(line)
    if record["t"] == "batches":
        return [{"t": "batch", **dict(zip(record["columns"], row, strict=True))} for row in record["rows"]]
    if record["t"] != "marks":
        return [record]
    return [{**record, "t": "mark", "k": record["k"] + i, "ns": ns} for i, ns in enumerate(record["ns"])]


def launch(
    folder: Path,
    program: str,
    *arguments: str,
    plan: dict[str, Any] | None = None,
    watched: bool = True,
    ranks: int = 0,
    cold: bool = False,
    compiles: bool = False,
    **variables: str,
) -> Run:
    """Run a program: with the probe if `watched`, on `ranks` if any, in a new interpreter if `cold`."""
    pytest.importorskip("torch")
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    (raw / "plan.json").write_text(json.dumps(plan or {}))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    before = environment.get("PYTHONPATH")
    if watched:
        environment["FATHOM_RAW"] = str(raw)
        environment["PYTHONPATH"] = os.pathsep.join([str(INJECT), *([before] if before else [])])
    words = [str(PROGRAMS / program), *arguments]
    if ranks:
        each = warm.run_ranks(words, environment, ranks)
        out, err = (
            "".join(text) for text in zip(*((done.stdout, done.stderr) for done in each), strict=True)
        )
        return Run(folder, next((done.returncode for done in each if done.returncode), 0), out, err)
    if not cold:
        imported = warm.COMPILING if compiles else (warm.TORCH, warm.DYNAMO)
        done = warm.run(words, environment, imported=imported)
        return Run(folder, done.returncode, done.stdout, done.stderr)
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return Run(folder, done.returncode, done.stdout, done.stderr)
