"""The program's command: resolve it, name the recording, and warn if it would keep the probe out."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from fathom.errors import FathomError

_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?$|pypy[\d.]*$")
_TAKES_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_PREVENTS = {
    "I": "isolated mode ignores PYTHONPATH",
    "S": "site is not imported",
    "E": "PYTHON* variables are ignored",
}


class CannotLaunchError(FathomError):
    """The program was not started; `status` is the exit status that a shell would return."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def resolve_command(command: list[str], environment: Mapping[str, str] = os.environ) -> tuple[str, list[str]]:
    """Return the program's path and the command to run: a bare `train.py` is run by Python.

    Raises CannotLaunchError with status 127 (not found) or 126 (not executable).
    """
    if not command or not command[0]:
        raise CannotLaunchError("No command was given; add it after --: fathom run -- python train.py.", 127)
    program = command[0]
    executable = os.sep in program and os.access(program, os.X_OK)
    if program.endswith(".py") and not executable and Path(program).is_file():
        return resolve_command([_python(environment), *command], environment)
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        raise _why_not(program)
    return path, command


def _python(environment: Mapping[str, str]) -> str:
    path = environment.get("PATH")
    named = ("python", "python3")
    return next((name for name in named if shutil.which(name, path=path)), sys.executable)


def _why_not(program: str) -> CannotLaunchError:
    path = Path(program)
    if path.is_dir():
        return CannotLaunchError(f"{program} is a directory; give the path of a program.", 126)
    if os.sep in program and path.exists():
        return CannotLaunchError(
            f"{program} is not executable; run it with its interpreter, or make it executable.", 126
        )
    hint = f"; did you mean ./{program}?" if path.exists() else " on PATH; check its name, or give its path."
    return CannotLaunchError(f"{program} was not found{hint}", 127)


def default_name(command: list[str]) -> str:
    """Return the recording's name: that of the script, the module or the program."""
    for word in command:
        if word.endswith((".py", ".sh", ".bash")) and not word.startswith("-"):
            return _clean(Path(word).stem)
    for flag, module in pairwise(command):
        if flag in ("-m", "--module"):
            return _clean(module.removesuffix(".__main__").rsplit(".", 1)[-1])
    return _clean(Path(command[0]).name)


def _clean(name: str) -> str:
    return re.sub(r"[^\w.+-]", "_", name).strip(".") or "program"


def free_output(name: str, folder: Path) -> Path:
    """Return `NAME.fathom` in `folder`, or the first free name of `NAME-2.fathom`, `NAME-3.fathom` …"""
    candidate, number = folder / f"{name}.fathom", 1
    while candidate.exists():
        number += 1
        candidate = folder / f"{name}-{number}.fathom"
    return candidate


def prevented(command: list[str]) -> str | None:
    """Return why the probe cannot start under `python -I`, `-S` or `-E`, or None."""
    if not command or not _PYTHON.search(Path(command[0]).name):
        return None
    words = iter(command[1:])
    for word in words:
        if word in _TAKES_VALUE:
            next(words, None)
            continue
        if not word.startswith("-") or word.startswith("--") or word[1:2] in ("c", "m", ""):
            return None
        for letter, why in _PREVENTS.items():
            if letter in word[1:] and word[1] not in "XW":
                return f"python -{letter} keeps the probe out ({why}), so only telemetry is recorded"
    return None
