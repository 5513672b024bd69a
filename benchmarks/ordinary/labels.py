"""The labels of the programs, and the source lines that are marked as the cause."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import yaml

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
MARKER = "# planted"
FAULTY, MENDED = FORMS = ("faulty", "mended")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Label:
    """The fault that is planted in one program.

    `kinds` are findings that name the cause, `bound` what the faulty form's verdict may say, `allowed` are
    findings that are true of both forms.
    """

    name: str
    library: str
    kinds: tuple[str, ...]
    bound: tuple[str, ...]
    why: str
    ranks: int = 1
    allowed: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.name}.py"

    def command(self, form: str, *more: str) -> list[str]:
        """The words that run a form of the program."""
        launcher = (
            ["-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks)] if self.ranks > 1 else []
        )
        fault = ["--fault"] if form == FAULTY else []
        return [sys.executable, *launcher, str(self.path), *fault, *more]

    @cached_property
    def lines(self) -> frozenset[int]:
        """Numbers of the marked lines."""
        text = self.path.read_text().splitlines()
        return frozenset(number for number, line in enumerate(text, 1) if line.rstrip().endswith(MARKER))

    @cached_property
    def functions(self) -> tuple[range, ...]:
        """Lines of the innermost functions that hold a marked line."""
        tree = ast.parse(self.path.read_text())
        spans = [
            range(node.lineno, (node.end_lineno or 0) + 1)
            for node in ast.walk(tree)
            if isinstance(node, Function)
        ]
        return tuple({min((span for span in spans if line in span), key=len) for line in self.lines})

    def place(self, source: str | None) -> str:
        """How near a finding's source is to the cause: `line`, `function`, `file`, `elsewhere` or `none`."""
        if not source:
            return "none"
        if self.path.name not in source:
            return "elsewhere"
        number = line_of(source, self.path.name)
        if number in self.lines:
            return "line"
        return "function" if any(number in span for span in self.functions) else "file"


def line_of(source: str, name: str) -> int:
    """The line in "…/NAME:12 …" or "…/NAME(12): …"; 0 without a number."""
    rest = source.rpartition(name)[2].lstrip("(:")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return int(digits or 0)


@cache
def labels() -> dict[str, Label]:
    rows = yaml.safe_load((HERE / "labels.yaml").read_text())
    lists = ("kinds", "bound", "allowed")
    return {
        name: Label(name, **{key: tuple(value) if key in lists else value for key, value in row.items()})
        for name, row in rows.items()
    }
