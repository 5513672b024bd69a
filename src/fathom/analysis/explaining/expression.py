"""Arithmetic over counters: `100 * l1tex__a.sum / l1tex__b.sum`. Only numbers, + - * /, min and max."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

_COUNTER = re.compile(r"[a-z]\w*__[\w.]*\w")
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max}


def counters_in(expression: str) -> list[str]:
    """The counters that an expression reads."""
    return _COUNTER.findall(expression)


def evaluate(expression: str, counters: Mapping[str, float]) -> float | None:
    """Its value; None where a counter is missing or a divisor is 0. Raises ValueError for other syntax."""
    try:
        written = _COUNTER.sub(lambda name: f"({counters[name[0]]!r})", expression)
        value = _value(ast.parse(written, mode="eval").body)
    except (KeyError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, parts))
    raise ValueError(f"an expression holds {ast.unparse(node)}, which is no arithmetic over counters")
