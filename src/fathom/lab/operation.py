"""Read a file of `operations/` without running it: its definitions, and the code that each needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from fathom import data
from fathom.errors import BadInputError


@dataclass(frozen=True)
class Operation:
    """The versions of one computation, and the functions that they share."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The name on the command line: `row-sum` for row_sum.py."""
        return self.path.stem.replace("_", "-")

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def defined(self) -> dict[str, list[ast.stmt]]:
        """The statements that define each name."""
        statements: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body[1:]:
            for name in _defines(statement):
                statements.setdefault(name, []).append(statement)
        return statements

    def needed(self, names: Iterable[str]) -> list[ast.stmt]:
        """Return the statements that these names need, and all that define no name, in the file's order."""
        todo, seen = list(names), set[str]()
        kept = {id(statement) for statement in self.tree.body[1:] if not any(_defines(statement))}
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for statement in self.defined.get(name, ()):
                kept.add(id(statement))
                todo += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
        return [statement for statement in self.tree.body[1:] if id(statement) in kept]

    def code(self, statements: Iterable[ast.stmt]) -> str:
        """Return the text of statements, without docstrings of functions and classes."""
        lines = self.text.splitlines(keepends=True)
        return "".join(lines[number - 1] for statement in statements for number in _lines(statement))

    def kernels(self, statements: Iterable[ast.stmt]) -> list[Path]:
        """Return the `.cu` files that the statements load: `Source(__file__)`, `Source(__file__, "name")`."""
        nodes = (node for statement in statements for node in ast.walk(statement))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        sources = [call for call in calls if getattr(call.func, "id", "") == "Source"]
        names = [str(getattr(call.args[1], "value", "")) if call.args[1:] else "" for call in sources]
        return [self.path.with_name(f"{name or self.path.stem}.cu") for name in names]


def _defines(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    else:
        stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
        yield from (node.id for node in stored if isinstance(node.ctx, ast.Store))


def _lines(statement: ast.stmt) -> Iterator[int]:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    hidden = range(0)
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(statement) is not None:
        docstring = statement.body[0]
        hidden = range(docstring.lineno, (docstring.end_lineno or 0) + 1)
    yield from (n for n in range(first, (statement.end_lineno or 0) + 1) if n not in hidden)


def read(path: Path) -> Operation:
    """Read the operation in the file `path`. Raises BadInputError."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError) as error:
        line = " ".join(str(error).split())[:200]
        raise BadInputError(f"{path} cannot be read: {line}.") from None
    return Operation(path, text, tree)


# The header of a technique: YAML in the docstring of its tuned form
MARK = "title:"  # how the docstring of a technique begins
ARROW = " → "


class Shows(msgspec.Struct, frozen=True):
    """A measure that differs between the forms: a counter or an entry of the ledger, and its two readings."""

    what: str
    plain: str
    tuned: str


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements: a GPU of at least this compute capability, packages by import name, a version of torch.

    `tools` maps programs of the CUDA toolkit to their minimum versions. `ranks`: the number of ranks, each
    with a GPU, or all on the CPU if the machine has no GPU.
    """

    gpu: bool = False
    capability: float = 0.0
    packages: tuple[str, ...] = ()
    torch: str = ""
    tools: dict[str, str] = {}
    ranks: int = 0


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the pair's proof: fields of the referee's `Pair` and `Settings`."""

    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    latency: Literal["removed", "included"] = "removed"
    cache: Literal["cold", "warm"] = "cold"


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The technique's group, and names of functions in the file: the plain form, and those for `Pair`.

    Without a reference, results are compared with the plain form in double precision.
    """

    group: Literal["memory", "compute", "schedule", "framework", "input", "ranks"]
    plain: str
    inputs: str = "inputs"
    reference: str = "reference"
    variants: str = "variants"
    work: str = "work"


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`saves`: the resource; `cost`: modelled gains and costs; `not_when`: cases in which it does not pay.

    `gains`: its purpose; `no_gain`: the chip on which its time did not fall, and why. `findings` are the
    kinds of findings that name it, each with its place among their techniques (1: the most specific);
    `no_finding` says why there are none. `tips` are those that it embodies (`fathom.tips`). `parameters`:
    constants of the file with the values that `fathom tune kernel --technique` tries.
    """

    title: str
    pair: Roles
    saves: str
    idea: str
    cost: str
    not_when: str
    shows: tuple[Shows, ...]
    tips: tuple[str, ...] = ()
    gains: Literal["time", "memory"] = "time"
    no_gain: str = ""
    findings: dict[str, int] = {}
    no_finding: str = ""
    needs: Needs = Needs()
    proof: Proof = Proof()
    parameters: dict[str, tuple[int | float | str | bool, ...]] = {}

    @property
    def tried(self) -> str:
        """The parameters with their values, as text."""
        rows = ((name, ", ".join(map(str, values))) for name, values in self.parameters.items())
        return "; ".join(f"{name}: {values}" for name, values in rows)


def parse(docstring: str) -> Header:
    """Parse a docstring's header; `shows` has lines `measure: plain → tuned`. Raises ValueError."""
    try:
        rows: dict[str, Any] = data.parse(docstring)
        rows["shows"] = [_shows(*row) for row in rows.get("shows", {}).items()]
        return msgspec.convert(rows, Header, strict=False)
    except (yaml.YAMLError, msgspec.ValidationError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from None


def _shows(what: Any, readings: Any) -> dict[str, str]:
    plain, arrow, tuned = str(readings).partition(ARROW)
    if not arrow:
        raise ValueError(f"'shows' has no{ARROW}in {what!r}")
    return {"what": str(what), "plain": plain, "tuned": tuned}
