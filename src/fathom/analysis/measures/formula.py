"""Formulas over counters as text: numbers, names, arithmetic, min, max and ceil only."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from fathom.errors import BadInputError

Function = Callable[[Mapping[str, float]], float]


class FormulaError(BadInputError):
    """The text is not arithmetic over names."""


class MissingError(Exception):
    """A name has no value, or a division by zero occurred; the message says which."""


def _divide(left: float, right: float) -> float:
    if right == 0:
        raise MissingError("there was nothing to divide by")
    return left / right


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max, "ceil": math.ceil}
_LONGEST = 2000  # characters of a formula
NOT_SAMPLED = "{} was not sampled"
_STEP = 1e-4  # of a standard error: the step of numerical derivatives


@lru_cache(maxsize=1024)
def parse(text: str) -> ast.expr:
    """Parse and check a formula. Raises FormulaError."""
    try:
        if len(text) > _LONGEST:
            raise ValueError
        tree = ast.parse(text, mode="eval").body
        _check(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(
            f"'{text[:60]}' is not a formula; use numbers, counters, + - * / and min, max."
        ) from None
    return tree


@lru_cache(maxsize=1024)
def names(text: str) -> tuple[str, ...]:
    """Return the names in a formula in order, for example `sm__cycles_active.avg.per_second`."""
    return tuple(dict.fromkeys(_names(parse(text))))


def evaluate(text: str, values: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the value of a formula and its standard error, from independent (value, error) by name.

    Raises MissingError if a name has no value or the result is not finite.
    """
    function, needed = _compiled(text), names(text)
    try:
        at = {name: float(values[name][0]) for name in needed}
    except KeyError as missing:
        raise MissingError(NOT_SAMPLED.format(missing.args[0])) from None
    value = function(at)
    variance = 0.0
    for name in needed:
        error = float(values[name][1])
        if error > 0:
            step = error * _STEP
            variance += ((function(at | {name: at[name] + step}) - value) / _STEP) ** 2
    if not math.isfinite(value) or not math.isfinite(variance):
        raise MissingError("it has no finite value")
    return value, math.sqrt(variance)


def value_of(text: str, values: Mapping[str, float]) -> float | None:
    """Return a formula's value over exact values; None if a name has no value or it is not finite."""
    try:
        return evaluate(text, {name: (value, 0.0) for name, value in values.items()})[0]
    except MissingError:
        return None


def _check(node: ast.expr) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(node.left)
        _check(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand)
    elif isinstance(node, ast.Call) and not node.keywords and node.args:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            raise ValueError
        for argument in node.args:
            _check(argument)
    elif isinstance(node, ast.Constant):
        if type(node.value) not in (int, float):
            raise ValueError
    else:
        _dotted(node)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.BinOp):
        return _names(node.left) + _names(node.right)
    if isinstance(node, ast.UnaryOp):
        return _names(node.operand)
    if isinstance(node, ast.Call):
        return [name for argument in node.args for name in _names(argument)]
    return [] if isinstance(node, ast.Constant) else [_dotted(node)]


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Function:
    """Return the formula as a function of the values by name."""
    return _function(parse(text))


def _function(node: ast.expr) -> Function:
    if isinstance(node, ast.BinOp):
        left, right, operation = _function(node.left), _function(node.right), _OPERATORS[type(node.op)]
        return lambda values: operation(left(values), right(values))
    if isinstance(node, ast.UnaryOp):
        operand = _function(node.operand)
        return lambda values: -operand(values)
    if isinstance(node, ast.Call):
        called: Any = node.func
        function, arguments = _FUNCTIONS[called.id], [_function(argument) for argument in node.args]
        return lambda values: float(function(*(argument(values) for argument in arguments)))
    if isinstance(node, ast.Constant):
        constant = float(node.value)  # type: ignore[arg-type]
        return lambda _: constant
    return operator.itemgetter(_dotted(node))
