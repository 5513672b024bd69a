"""The cell magic `%%fathom`, which `%load_ext fathom` registers."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any, NoReturn

from fathom.api import Sounding, record
from fathom.errors import BadInputError, FathomError
from fathom.integrations.figures import safe

DEFAULT = "cell.fathom"


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInputError(f"%%fathom: {message}; {self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise BadInputError("")  # after --help


def _options() -> _Options:
    options = _Options(prog="%%fathom", description="Record the steps of a cell, and show where they go.")
    options.add_argument(
        "path", nargs="?", help=f"the sounding; by default {DEFAULT}, which is overwritten each time"
    )
    options.add_argument("--replace", action="store_true", help="overwrite the sounding if it exists")
    options.add_argument("--depth", default="auto", help="auto, surface, timeline or counters")
    options.add_argument("--steps", type=int, help="steps recorded in each phase")
    options.add_argument("--settle", type=int, help="steps to wait before recording")
    return options


def run_cell(shell: Any, line: str, cell: str) -> Sounding | None:
    """Run the cell in `shell` while its steps are recorded, and return the sounding, which is then shown."""
    try:
        asked = _options().parse_args(_words(line))
        options = {name: getattr(asked, name) for name in ("depth", "steps")}
        settle = {} if asked.settle is None else {"settle": asked.settle}
        replace = asked.replace or asked.path is None
        recording = record(asked.path or DEFAULT, replace=replace, **options, **settle)
        recording.__enter__()
    except FathomError as error:
        _say(str(error))
        return None
    result = shell.run_cell(cell)
    raised = result.error_before_exec or result.error_in_exec
    recording.__exit__(type(raised) if raised else None, raised, None)
    return recording.sounding


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise BadInputError(f"%%fathom: {error}.") from None


def _say(text: str) -> None:
    if text:
        print(f"fathom: {safe(text)}", file=sys.stderr)


def load(shell: Any) -> None:
    """Register the magic."""

    def fathom(line: str, cell: str) -> Sounding | None:
        return run_cell(shell, line, cell)

    fathom.__doc__ = _options().format_help()
    shell.register_magic_function(fathom, "cell", "fathom")
