"""Arguments of a call: replace them, or add them in the layout that the call has."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from fathom.tuner.patching.source import Edit, RefusedError, Source, last_name


def given(call: ast.Call, parameters: Sequence[str]) -> dict[str, ast.expr]:
    """Return a call's arguments by name. Raises RefusedError if some are not known by name."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        raise RefusedError(f"the call in line {call.lineno} passes *{_unpacked(call)}")
    if any(keyword.arg is None for keyword in call.keywords):
        raise RefusedError(f"the call in line {call.lineno} passes **{_unpacked(call)}")
    if len(call.args) > len(parameters):
        raise RefusedError(f"the call in line {call.lineno} has arguments that Fathom does not know")
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return dict(zip(parameters, call.args, strict=False)) | named


def _unpacked(call: ast.Call) -> str:
    starred = [each.value for each in call.args if isinstance(each, ast.Starred)]
    starred += [keyword.value for keyword in call.keywords if keyword.arg is None]
    return last_name(starred[0]) or "arguments"


def with_arguments(
    source: Source, call: ast.Call, parameters: Sequence[str], values: Mapping[str, str]
) -> list[Edit]:
    """Return the edits after which a call has these arguments, whose values are Python expressions."""
    present = given(call, parameters)
    edits = []
    for name, value in values.items():
        if name in present and ast.unparse(present[name]) != value:
            edits.append(Edit(source.path, *source.span(present[name]), value))
    added = [f"{name}={value}" for name, value in values.items() if name not in present]
    return edits + (_added(source, call, added) if added else [])


def _added(source: Source, call: ast.Call, arguments: Sequence[str]) -> list[Edit]:
    """Return the edits that add arguments: in lines, if the closing parenthesis has its own line."""
    closing = source.span(call)[1] - 1
    _, end, token = max(known for known in source.tokens if known[1] <= closing)
    line_start = source.line_start(call.end_lineno or call.lineno)
    is_comma, is_opening = token == ",", token == "(" and not call.args and not call.keywords
    in_lines = line_start >= end and not is_opening and not source.text[line_start:closing].strip()
    if not in_lines:
        text = "".join(f", {each}" for each in arguments)
        text = f" {text[2:]}," if is_comma else text[2:] if is_opening else text
        return [Edit(source.path, end, end, text)]
    indent = _indent(source, call)
    lines = "".join(f"{indent}{each},{source.newline}" for each in arguments)
    comma = [] if is_comma else [Edit(source.path, end, end, ",")]
    return [*comma, Edit(source.path, line_start, line_start, lines)]


def _indent(source: Source, call: ast.Call) -> str:
    """Return the white space before the last argument's line."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    line = source.line(max(value.lineno for value in values))
    last = max((keyword.lineno for keyword in call.keywords), default=0)
    line = source.line(last) if last else line
    return line[: len(line) - len(line.lstrip())]


def constructs(source: Source, call: ast.Call, type_name: str) -> bool:
    """Return whether a call names this class, or is a subclass's call of its `__init__`."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "__init__":
        return isinstance(func.value, ast.Call) and last_name(func.value.func) == "super"
    return last_name(func) in {type_name, *_aliases(source, type_name)}


def _aliases(source: Source, type_name: str) -> set[str]:
    """Return the other names that a file gives to a class."""
    nodes = list(ast.walk(source.tree))
    imported = (alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names)
    names = {alias.asname for alias in imported if alias.name == type_name and alias.asname}
    for node in nodes:
        if isinstance(node, ast.Assign) and last_name(node.value) == type_name:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names
