"""Shared by the benchmarks of costs: a command line with a program's own words, lines of JSON, results."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launcher import ROOT

RESULTS = ROOT / "benchmarks" / "results"
Command = Callable[[argparse.Namespace], None]
Adding = Callable[[argparse.ArgumentParser], None]


def run(about: str | None, commands: Mapping[Command, Adding]) -> None:
    """Do the command that the command line names, with the options that are added to each.

    What follows `--` is for the program that is measured: `arguments`.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = parser.add_subparsers(required=True)
    for command, add in commands.items():
        first = (command.__doc__ or "").splitlines()[0]
        sub = known.add_parser(command.__name__, help=first.replace("%", "%%"))
        sub.set_defaults(command=command)
        add(sub)
    ours, _, arguments = split(sys.argv[1:])
    options = parser.parse_args(ours, argparse.Namespace(arguments=arguments))
    options.command(options)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The output folder of earlier commands."""
    parser.add_argument("out", type=Path)


def split(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The words before `--`, itself, and those after it, as str.partition does."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


def append(file: Path, row: dict[str, Any], *, shown: bool = True) -> None:
    """Add a line to a file of JSON lines."""
    line = json.dumps(row)
    if shown:
        print(line, flush=True)
    with file.open("a") as out:
        out.write(line + "\n")


def lines(file: Path) -> list[dict[str, Any]]:
    """The rows of such a file; none where there is none."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(name: str, result: Any) -> None:
    """Write a result of this folder, and print it."""
    text = json.dumps(result, indent=1)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(text + "\n")
    print(text)


def device_name() -> str:
    """The device that the programs ran on, from the driver's own tool."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return "cpu"
    listed = subprocess.run(
        [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
    )
    return listed.stdout.splitlines()[0].strip() if listed.stdout.strip() else "cpu"
