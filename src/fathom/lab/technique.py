"""A technique: a named pair of versions of an operation, in the form that the referee takes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fathom.errors import BadInputError
from fathom.lab.operation import MARK, Header, Needs, Operation, parse, read

if TYPE_CHECKING:
    from fathom.referee import Pair

INCLUDE = Path(__file__).parent / "include"
_TIMES_KERNELS = re.compile(r"autotune|coordinate_descent_tuning|cudnn\.benchmark\b")
_ROLES = ("plain", "inputs", "reference", "variants", "work")
_DEFAULTS = {name: name for name in ("reference", "variants", "work")}


@dataclass(frozen=True)
class Technique:
    """`function` is the tuned form in the operation's file; its docstring is the header."""

    operation: Operation
    function: str
    header: Header

    @property
    def name(self) -> str:
        """The name on the command line: `bank-padding` for the function bank_padding."""
        return self.function.replace("_", "-")

    @property
    def path(self) -> Path:
        """The operation's file."""
        return self.operation.path

    @property
    def group(self) -> str:
        """The resource that it saves, in a word."""
        return self.header.pair.group

    @cached_property
    def roles(self) -> dict[str, str]:
        """The function in each role: `plain`, `tuned`, `inputs`, and optional roles that the file defines."""
        named = {"tuned": self.function} | {role: getattr(self.header.pair, role) for role in _ROLES}
        return {role: name for role, name in named.items() if name in self.operation.defined}

    @cached_property
    def _needed(self) -> list[ast.stmt]:
        return self.operation.needed(self.roles.values())

    @cached_property
    def code(self) -> str:
        """The part of the file that its forms need, without docstrings."""
        return self.operation.code(self._needed)

    @cached_property
    def sources(self) -> list[Path]:
        """The files with its code, the Python one first."""
        return [self.path, *(path for path in self.operation.kernels(self._needed) if path.exists())]

    @property
    def compiled(self) -> bool:
        """Whether it has kernels in CUDA C++."""
        return len(self.sources) > 1

    @property
    def needs(self) -> Needs:
        """The header's needs, plus cuda.core for CUDA C++, and a GPU for CUDA C++ and Triton."""
        needs = self.header.needs
        packages = ("cuda.core", *needs.packages) if self.compiled else needs.packages
        gpu = needs.gpu or self.compiled or "triton" in packages
        return replace(needs, gpu=gpu, packages=packages)

    @cached_property
    def chooses(self) -> bool:
        """Whether it chooses kernels by timing them, which other proofs would disturb."""
        return _TIMES_KERNELS.search(self.code) is not None

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits that change with the code and with the header's `proof`."""
        included = sorted(INCLUDE.iterdir()) if self.compiled else []
        others = [path.read_bytes() for path in (*self.sources[1:], *included)]
        decisive = json.dumps([self.roles, msgspec.to_builtins(self.header.proof)])
        return sha256(b"\0".join([decisive.encode(), self.code.encode(), *others])).hexdigest()[:16]

    @property
    def pair(self) -> Pair:
        """The referee's pair of both forms, which the crafted kernels and the suite of faults use too."""
        from fathom.referee import Pair  # with NumPy, which a report's names of techniques do not need

        at: dict[str, Any] = {role: f"{self.path}:{name}" for role, name in self.roles.items()}
        proof = self.header.proof
        how: dict[str, Any] = {name: getattr(proof, name) for name in ("precision", "reduction", "allow")}
        return Pair(**at, **how, name=self.name, findings=tuple(self.header.findings), ranks=self.needs.ranks)


def described(technique: Technique) -> dict[str, Any]:
    """Return the technique's header, needs and sources, for JSON."""
    header = msgspec.to_builtins(technique.header)
    group = header.pop("pair")["group"]
    header |= header.pop("proof") | {"needs": msgspec.to_builtins(technique.needs)}
    header["findings"] = [*technique.header.findings]
    sources = [str(path) for path in technique.sources]
    place = {"operation": technique.operation.name, "functions": technique.roles, "sources": sources}
    return {"name": technique.name, "group": group, **header, **place}


def techniques_of(path: Path) -> list[Technique]:
    """Return the techniques of one file, in its order. Raises BadInputError."""
    operation = read(path)
    texts = {name: ast.get_docstring(node) or "" for name, node in operation.functions.items()}
    headers = {name: _header(path, name, text) for name, text in texts.items() if text.startswith(MARK)}
    if not headers:
        raise BadInputError(f"{path} has no technique; begin the docstring of a tuned form with '{MARK}'.")
    return [_checked(Technique(operation, name, header)) for name, header in headers.items()]


def _header(path: Path, name: str, text: str) -> Header:
    try:
        return parse(text)
    except ValueError as error:
        line = " ".join(str(error).split())[:200]
        raise BadInputError(f"The docstring of {name} in {path} is not a valid header: {line}.") from None


def _checked(technique: Technique) -> Technique:
    """Return the technique. Raises BadInputError if the file lacks a function that its header names."""
    for role in _ROLES:
        name = getattr(technique.header.pair, role)
        if role not in technique.roles and name != _DEFAULTS.get(role):
            who = f"which {technique.function} needs as {role}"
            raise BadInputError(f"{technique.path} has no '{name}', {who}.")
    return technique


GROUPS = ("memory", "compute", "schedule", "framework", "input", "ranks")
FOLDER = Path(__file__).parent / "operations"
LISTING = "`fathom lab list` shows all"


@cache
def techniques(folder: Path = FOLDER) -> dict[str, Technique]:
    """Return every technique by its name, group by group. Raises BadInputError if a file is damaged."""
    read = [technique for path in sorted(folder.glob("[!_]*.py")) for technique in techniques_of(path)]
    read.sort(key=lambda technique: (GROUPS.index(technique.group), technique.name))
    return {technique.name: technique for technique in read}


def chosen(names: Sequence[str], folder: Path = FOLDER, listing: str = LISTING) -> list[Technique]:
    """Return the techniques that `names` select by name or by group.

    Raises BadInputError for an unknown name; `listing` is how the caller lists all techniques.
    """
    every = techniques(folder)
    selected: dict[str, Technique] = {}
    for name in names:
        here = [t for t in every.values() if name.replace("_", "-") in (t.name, t.group)]
        if not here:
            similar = ", ".join(get_close_matches(name, every, n=3, cutoff=0.4))
            instead = f"similar ones: {similar}" if similar else listing
            raise BadInputError(f"There is no technique {name[:60]!r}; {instead}.")
        selected |= {technique.name: technique for technique in here}
    return list(selected.values())


@cache
def naming(kind: str) -> list[Technique]:
    """Return the techniques whose headers list this kind of finding, in the order of their places there."""
    files = [path for path in sorted(FOLDER.glob("[!_]*.py")) if kind in path.read_text(encoding="utf-8")]
    listing = [t for path in files for t in techniques_of(path) if kind in t.header.findings]
    return sorted(listing, key=lambda technique: (technique.header.findings[kind], technique.name))
