"""Blocks of Markdown that show commands with their output.

A fenced `console` block with commands alone (lines that begin with `$ `) gets its output when the
documentation is built. A block with output is left as it is: that is what another machine, or a recording
of a program, gave.

    python tools/console.py docs/get-started.md FOLDER  # runs a page in FOLDER, and writes its output
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "$ "
COLUMNS = "100"
_BLOCK = re.compile(r"^```(?P<kind>console|sh)(?P<options>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)


class CommandError(Exception):
    """A command of the documentation failed."""


def commands(markdown: str) -> Iterator[str]:
    """Every command line in the blocks of a page."""
    for match in _BLOCK.finditer(markdown):
        prompt = PROMPT if match["kind"] == "console" else ""
        joined = match["body"].replace("\\\n", " ").splitlines()
        lines = (line.removeprefix(prompt).strip() for line in joined if line.startswith(prompt))
        yield from (line for line in lines if line and not line.startswith("#"))


def filled(markdown: str) -> str:
    """Run the commands of blocks without output, in the root of the repository, and add their output."""
    return _BLOCK.sub(lambda match: _with_output(match, ROOT, again=False), markdown)


def repeated(markdown: str, folder: Path) -> str:
    """Run the commands of all `console` blocks in a folder, and replace their output."""
    return _BLOCK.sub(lambda match: _with_output(match, folder, again=True), markdown)


def _with_output(match: re.Match[str], folder: Path, again: bool) -> str:
    lines = match["body"].splitlines()
    typed = [line for line in lines if line.startswith(PROMPT)]
    if match["kind"] != "console" or not (again or typed == lines):
        return match[0]
    shown = [part for line in typed for part in (line, *run(line.removeprefix(PROMPT), folder))]
    return "\n".join([f"```console{match['options']}", *shown, "```"])


def run(command: str, folder: Path) -> list[str]:
    """The lines that a command prints, without blank ones around them. Raises CommandError if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "COLUMNS": COLUMNS, "PATH": path}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode and "|" not in command:
        raise CommandError(f"{command!r} ended with status {done.returncode}:\n{done.stdout}")
    return [line.rstrip() for line in done.stdout.strip("\n").splitlines()]


def main(page: str, folder: str) -> None:
    """Renew the output on a page."""
    path = Path(page)
    path.write_text(repeated(path.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
