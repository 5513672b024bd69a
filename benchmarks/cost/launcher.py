"""Start a program as it is, or under `fathom run --raw`, with the standard library alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "benchmarks" / "programs"
RECORDING = "recording.fathom"


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


def as_started(program: str, arguments: list[str]) -> str:
    """The program's file, with `sys.path` and `sys.argv` of this process as if it had been started by it."""
    file = script(program)
    sys.path.insert(0, str(file.parent))
    sys.argv = [str(file), *arguments]
    return str(file)


def under_fathom(command: list[str], folder: Path, options: list[str]) -> list[str]:
    """`command`, recorded into `folder` as raw records."""
    return [sys.executable, "-m", "fathom", "run", "--raw", "-o", str(folder), *options, "--", *command]


def started_by(program: str, arguments: list[str], folder: Path, recorded: list[str] | None) -> list[str]:
    """The command of a program: as it is, or with these options of `fathom run` into `folder`."""
    command = [sys.executable, str(script(program)), *arguments]
    return command if recorded is None else under_fathom(command, folder / RECORDING, recorded)


def pinned(command: list[str], cores: str | None) -> list[str]:
    """`command`, on the cores that `cores` names (`2-5`) alone.

    Addresses stay random: where they are fixed, a longer environment alone shifts the stack, and made one of
    two equal programs 1 % quicker in every pair. Over several pairs that averages out.
    """
    return ["taskset", "--cpu-list", cores, *command] if cores else command


def start(command: list[str], log: Path, *, session: bool = False, **more: str) -> subprocess.Popen[bytes]:
    """Start a command with its output in `log`, and `more` in its environment.

    In its own session it leads a group that can be ended as a whole, and no terminal interrupts it.
    """
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **more}
    with log.open("wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=session
        )


def execute(command: list[str], log: Path) -> Outcome:
    """Run a command to its end, with its output in `log`."""
    begin = time.perf_counter()
    process = start(command, log)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(process.returncode, time.perf_counter() - begin, usage.ru_maxrss * 1024)


def records(folder: Path) -> list[dict[str, Any]]:
    """Every raw record of the recording in `folder`, process by process; a torn last line is left out."""
    result = []
    for file in sorted((folder / "raw").glob("proc-*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                result.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return result
