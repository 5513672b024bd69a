"""Which runs there are to record, in which order, and whether one can be recorded here."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

from faults.finish import RAW, TIMES
from faults.labels import Program, Suite, programs

COUNTED = 10  # times as many steps where its own kernel is at fault: only counters show the cause


@dataclass(frozen=True)
class Run:
    """One form of one program at one severity."""

    program: Program
    form: str
    severity: int

    @property
    def name(self) -> str:
        return f"{self.program.group}.{self.program.name}.{self.form}.{self.severity}"

    @property
    def counted(self) -> bool:
        """Whether the recording shall hold hardware counters."""
        return bool(self.program.fault.needs.get("cupy"))

    def command(self, folder: Path, options: argparse.Namespace) -> list[str]:
        """The program under `fathom run --raw`."""
        needs = {} if options.small else self.program.fault.needs
        steps = max(options.steps * (COUNTED if self.counted else 1), needs.get("steps", 0))
        fathom = ["-m", "fathom", "run", "--raw", "--no-measure", "--quiet", "--steps", str(options.windows)]
        fathom += ["--depth", "counters" if self.counted else "timeline"]
        words = ["--steps", str(steps), "--times", str(folder / TIMES)]
        words += ["--device", "cpu", "--small"] if options.small else []
        program = self.program.command(self.form, self.severity, *words)
        return [sys.executable, *fathom, "-o", str(folder / RAW), "--", *program]


def chosen(options: argparse.Namespace, suite: Suite = programs) -> Iterator[Run]:
    """Both forms next to each other, so that they meet the same machine; groups and severities by turns."""
    kept = recorded_before(options.kept) if options.missing else set()
    for program, severity in evenly(filter(partial(wanted, options=options), suite()), options.severity):
        both = (Run(program, form, severity) for form in program.forms if form in options.form)
        yield from (run for run in both if run.name not in kept)


def wanted(program: Program, options: argparse.Namespace) -> bool:
    if options.only and not {program.id, program.name} & set(options.only):
        return False
    return not options.group or program.group in options.group


def evenly(suite: Iterable[Program], severities: list[int]) -> Iterator[tuple[Program, int]]:
    """Programs and severities in an order of which every beginning holds about the same part of each group.

    A group's programs all come once, at severities by turns, before one of them comes again. Groups begin
    with different severities.
    """
    groups: dict[str, list[Program]] = defaultdict(list)
    for program in suite:
        groups[program.group].append(program)
    placed = []
    for place, group in enumerate(groups.values()):
        turns = [
            (program, severities[(place + number + turn) % len(severities)])
            for turn in range(len(severities))
            for number, program in enumerate(group)
        ]
        those = [(program, severity) for program, severity in turns if severity in program.fault.severity]
        placed += [((at + 0.5) / len(those), item) for at, item in enumerate(those)]
    return (item for _, item in sorted(placed, key=itemgetter(0)))


def recorded_before(kept: Path) -> set[str]:
    """Names of the recordings that are kept."""
    index = kept / "index.json"
    return set(json.loads(index.read_text())) if index.exists() else set()


def unmet(program: Program, small: bool) -> str:
    """Why it cannot run here; empty where it can."""
    needs, cores = program.fault.needs, len(os.sched_getaffinity(0))
    if needs.get("gpu") and not small and not Path("/dev/nvidiactl").exists():
        return "it needs an NVIDIA GPU"
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not small and needs.get("gpus", 0) > gpus:
        return f"it needs {needs['gpus']} GPUs, and here are {gpus}"
    if needs.get("cupy") and (small or not importlib.util.find_spec("cupy")):
        return "its kernels need cupy and a GPU"
    if not small and needs.get("cores", 0) > cores:
        return f"it needs {needs['cores']} cores, and here are {cores}"
    return ""
