"""What a technique says of itself: the YAML that is its file's docstring, so that reading it runs nothing."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from fathom.errors import BadInputError


class Shows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that tells both forms apart: a counter, or an entry of the ledger, and what it reads."""

    what: str
    plain: str
    tuned: str


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What has to be here: a GPU of at least this compute capability, packages by import name, torch.

    `tools` are programs of CUDA's toolkit, and the least version of each.
    """

    gpu: bool = False
    capability: float = 0.0
    packages: tuple[str, ...] = ()
    torch: str = ""
    tools: dict[str, str] = {}


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`saves`: the resource; `cost`: the model of what it gains and costs; `not_when`: when it does not pay.

    `gains`: what it is for; `no_gain`: the chip on which its time did not fall, and why. `findings` are the
    kinds that name it. `reference` says what results are compared with, where that is not the plain form in
    double precision. The rest are the fields of `Pair` and of the referee's `Settings`.
    """

    title: str
    saves: str
    idea: str
    cost: str
    not_when: str
    shows: tuple[Shows, ...]
    gains: Literal["time", "memory"] = "time"
    no_gain: str = ""
    findings: tuple[str, ...] = ()
    needs: Needs = Needs()
    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    latency: Literal["removed", "included"] = "removed"
    cache: Literal["cold", "warm"] = "cold"


PROVEN = ("precision", "reduction", "allow", "latency", "cache")  # what a proof depends on


def read(path: Path) -> tuple[Header, frozenset[str]]:
    """The header of a technique's file, and the names of its functions. Raises BadInputError."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        header = msgspec.convert(yaml.safe_load(ast.get_docstring(tree) or ""), Header, strict=False)
    except (OSError, ValueError, SyntaxError, yaml.YAMLError, msgspec.ValidationError) as error:
        line = " ".join(str(error).split())[:200]
        raise BadInputError(f"{path} has no header that can be read: {line}.") from None
    return header, frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def code(path: Path) -> str:
    """The text of a technique's file below its header."""
    text = path.read_text(encoding="utf-8")
    end = ast.parse(text).body[0].end_lineno or 0
    return "".join(text.splitlines(keepends=True)[end:])
