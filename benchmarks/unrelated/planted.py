"""The labels of all programs, as programs of the suite's type."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from faults.labels import Fault, Program

HERE = Path(__file__).parent
KEPT = HERE / "recordings"
NONE = "none"  # the fault of the well-tuned form
NEEDS = {"gpu": True, "cores": 14}


@dataclass(frozen=True)
class Planted(Program):
    """One fault of a program, or its well-tuned form: `group` is the program, `name` the fault.

    `seen` says when its recordings were read while rules were changed; empty if they never were.
    """

    seen: str = ""

    @property
    def family(self) -> str:
        return self.group

    @property
    def forms(self) -> tuple[str, ...]:
        """One: what is well tuned is the twin of every fault."""
        return ("faulty",) if self.fault.kind else ("mended",)

    def command(self, form: str, severity: int, *more: str) -> tuple[str, ...]:
        """The command that runs it; all faults have one severity."""
        fault = NONE if form == "mended" else self.name
        return (sys.executable, str(HERE / f"{self.group}.py"), "--fault", fault, *more)


@cache
def planted() -> tuple[Planted, ...]:
    """Each program's well-tuned form and its faults, in the order of their file."""
    labels = yaml.safe_load((HERE / "labels.yaml").read_text())
    return tuple(
        Planted(program, name, fault, seen=label.get("seen", ""))
        for program, label in labels.items()
        for name, fault in [
            (NONE, Fault(kind=None, severity=[2], needs=NEEDS)),
            *map(_named, label["faults"].items()),
        ]
    )


def _named(row: tuple[str, dict]) -> tuple[str, Fault]:
    name, label = row
    fault = Fault(
        kind=label["kind"],
        expected=[label["kind"]],
        allowed=label.get("allowed", []),
        severity=[2],
        share=[label["share"]],
        why=label["why"],
        needs=NEEDS,
    )
    return name, fault
