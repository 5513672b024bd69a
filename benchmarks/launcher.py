"""Start a program as it is, or under `fathom run --raw`, with the standard library alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "benchmarks" / "programs"


@dataclass
class Outcome:
    """How a run ended; peak memory is that of the largest process in it."""

    status: int
    wall_s: float
    peak_bytes: int


def script(name: str) -> Path:
    """The file of a program: one of `benchmarks/programs`, or an example."""
    here = PROGRAMS / f"{name}.py"
    return here if here.exists() else ROOT / "examples" / f"{name}.py"


def under_fathom(command: list[str], folder: Path, options: list[str]) -> list[str]:
    """`command`, recorded into `folder` as raw records."""
    return [sys.executable, "-m", "fathom", "run", "--raw", "-o", str(folder), *options, "--", *command]


def steady(command: list[str], cores: str | None) -> list[str]:
    """`command` on the same addresses every time and, where `cores` names some (`2-5`), on these alone.

    Where memory lies and which core runs make runs of one launch-bound program differ by several percent.
    """
    pinned = ["taskset", "--cpu-list", cores] if cores else []
    return [*fixed_addresses(), *pinned, *command]


@cache
def fixed_addresses() -> tuple[str, ...]:
    """What keeps memory where it lay in the run before; nothing where a container forbids it."""
    words = ("setarch", "--addr-no-randomize")
    allowed = shutil.which(words[0]) and not subprocess.run([*words, "true"], capture_output=True).returncode
    return words if allowed else ()


def execute(command: list[str], log: Path) -> Outcome:
    """Run `command` to its end, with its output in `log`."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    start = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(process.returncode, time.perf_counter() - start, usage.ru_maxrss * 1024)


def records(folder: Path) -> list[dict[str, Any]]:
    """Every raw record of the recording in `folder`, process by process; a torn last line is left out."""
    found = []
    for file in sorted((folder / "raw").glob("proc-*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return found
