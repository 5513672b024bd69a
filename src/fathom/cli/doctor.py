"""`fathom doctor`: the recording depths that work here."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from typer import Option

from fathom.cli.console import print_json

if TYPE_CHECKING:
    from fathom.recorder import Diagnosis

LEAST, PIPED = 16, 10_000  # characters beside a label, at least and in a file
EXAMPLES = "Example: fathom doctor --python ~/venv/bin/python"


def doctor(
    python: str | None = Option(None, help="Python interpreter of the program. [default: python on PATH]"),
    json: bool = Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Check which recording depths work here, and explain why others do not."""
    from fathom.recorder import examine_host

    diagnosis = examine_host(python)
    if json:
        print_json(diagnosis.as_dict())
    else:
        _print(diagnosis)


def _print(diagnosis: Diagnosis) -> None:
    for depth, why in diagnosis.depths.items():
        _wrapped(f"{depth:10} ", "works" if not why else f"does not work: {why}")
    print()
    for check in diagnosis.checks:
        sign = {True: "ok", False: "!!", None: "--"}[check.ok]
        _wrapped(f"{sign} {check.what:20} ", check.found)
        if check.ok is False:
            _wrapped(f"{'':24}", f"fix: {check.fix}")


def _wrapped(label: str, text: str) -> None:
    """Print a text beside its label, wrapped on a terminal."""
    room = shutil.get_terminal_size().columns - len(label) if sys.stdout.isatty() else PIPED
    lines = textwrap.wrap(text, max(room, LEAST), break_on_hyphens=False) or [""]
    print(label + f"\n{'':{len(label)}}".join(lines))
