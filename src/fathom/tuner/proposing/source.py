"""A candidate's source: the constants that are parameters, and the same source with other values.

Parameters are constants of the module, or literal arguments of calls, that the file declares:

    BLOCK = 128
    parameters = {"BLOCK": [64, 128, 256], "num_warps": [2, 4, 8]}

In files with Triton kernels, `num_warps`, `num_stages` and constants whose names begin with BLOCK are
parameters without a declaration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError, file_errors
from fathom.regular import read_regular
from fathom.tuner.proposing.space import Choice, Parameter, Space

DECLARATION = "parameters"
# The usual values of a Triton kernel's configuration.
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
LEAST_BLOCK, AROUND = 16, (-2, -1, 0, 1, 2)  # powers of two beside the value in the file
Literals = dict[str, list[ast.expr]]  # by name, in the order of the file


@dataclass(frozen=True)
class Source:
    """A file with its space."""

    path: Path
    text: str
    space: Space

    def fixed(self, choice: Choice) -> str:
        """Return the text with these values instead of those in the file."""
        lines = self.text.encode().splitlines(keepends=True)
        literals = _literals(ast.parse(self.text))
        nodes = [(node, value) for name, value in choice.items() for node in literals[name]]
        for node, value in sorted(nodes, key=lambda pair: (pair[0].lineno, pair[0].col_offset), reverse=True):
            row = node.lineno - 1  # a literal number, text or bool is on one line, and columns count bytes
            line, end = lines[row], node.end_col_offset or 0
            lines[row] = line[: node.col_offset] + repr(value).encode() + line[end:]
        return b"".join(lines).decode()


def read_source(path: Path, declared: Mapping[str, Sequence[Any]] | None = None) -> Source:
    """Read a file; `declared` replaces its declaration of parameters. Raises BadInputError."""
    try:
        with file_errors(path):
            text = read_regular(path).decode()
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInputError(f"{path} is not valid Python: {error}.") from None
    literals = _literals(tree)
    wanted = dict(declared) if declared is not None else _declared(path, tree)
    parameters = [_parameter(path, name, values, literals.get(name, [])) for name, values in wanted.items()]
    if declared is None and ".jit" in text and "triton" in text:
        parameters += _usual(literals, wanted)
    return Source(path, text, Space(tuple(parameters)))


def _declared(path: Path, tree: ast.Module) -> dict[str, Sequence[Any]]:
    """Return the file's declaration, {} without one. Raises BadInputError if it is not a literal."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == DECLARATION for target in node.targets
        ):
            try:
                declared = ast.literal_eval(node.value)
            except (ValueError, TypeError, MemoryError, RecursionError):
                declared = None
            if not isinstance(declared, dict) or not all(map(_is_row, declared.items())):
                example = "{'BLOCK': [64, 128]}"
                raise BadInputError(f"{path}: '{DECLARATION}' needs names with lists of values: {example}.")
            return declared
    return {}


def _is_row(row: tuple[Any, Any]) -> bool:
    return isinstance(row[0], str) and isinstance(row[1], (list, tuple)) and len(row[1]) > 0


def _parameter(path: Path, name: str, values: Sequence[Any], nodes: list[ast.expr]) -> Parameter:
    """Return a declared parameter. Raises BadInputError if the file has no single value for it."""
    present = {repr(_value(node)): _value(node) for node in nodes}
    if len(present) != 1:
        why = "has no constant of this name" if not present else "has several values for it"
        raise BadInputError(f"{path} declares the parameter {name}, but {why}.")
    if not all(isinstance(value, (bool, int, float, str)) for value in values):
        raise BadInputError(f"{path}: the values of {name} must be numbers, texts, True or False.")
    return Parameter(name, tuple(values), next(iter(present.values())))


def _usual(literals: Literals, wanted: Mapping[str, Any]) -> Iterator[Parameter]:
    """Yield the parameters of a Triton kernel's configuration that are not declared."""
    for name, nodes in literals.items():
        present = {_value(node) for node in nodes}
        if name in wanted or len(present) != 1:
            continue
        value = present.pop()
        if values := _usual_values(name, value):
            yield Parameter(name, values, value)


def _usual_values(name: str, value: Any) -> tuple[int, ...] | None:
    """Return the values to try for a constant of this name; None if it is not part of a configuration."""
    plain = name.lower().lstrip("_")
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if plain == "num_warps":
        return WARPS
    if plain == "num_stages":
        return STAGES
    if plain.startswith("block") and value > 0 and value & (value - 1) == 0:
        blocks = (value << power if power >= 0 else value >> -power for power in AROUND)
        return tuple(block for block in blocks if block >= min(LEAST_BLOCK, value))
    return None


def _literals(tree: ast.Module) -> Literals:
    """Return the constants of the module and the literal arguments of its calls, by name."""
    nodes: Literals = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                _assigned(target, statement.value, nodes)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _assigned(statement.target, statement.value, nodes)
    for node in _outside_of_texts(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg and _is_literal(keyword.value):
                    nodes.setdefault(keyword.arg, []).append(keyword.value)
    return nodes


def _outside_of_texts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those in f-strings, whose places in the file Python 3.11 does not know."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield from _outside_of_texts(child)


def _assigned(target: ast.expr, value: ast.expr, nodes: Literals) -> None:
    """Add literals to the names that they are assigned to, also in `A, B = 1, 2`."""
    if isinstance(target, ast.Name) and _is_literal(value):
        nodes.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, literal in zip(target.elts, value.elts, strict=False):
            _assigned(part, literal, nodes)


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (bool, int, float, str))
        and node.lineno == node.end_lineno
    )


def _value(node: ast.expr) -> Any:
    return ast.literal_eval(node)
