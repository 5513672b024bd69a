"""The formulas of operators, and their evaluation."""

from __future__ import annotations

import math

from fathom.analysis.work import (
    attention,
    communication,
    compiled,
    convolution,
    elementwise,
    indexing,
    matmul,
    norm,
    optimizer,
    reduction,
    serving,
)
from fathom.analysis.work.call import Formula, UnknownWorkError, Work, parse_call

_GROUPS = (
    attention, communication, convolution, elementwise, indexing, matmul, norm, optimizer, reduction, serving,
)  # fmt: skip
FORMULAS: dict[str, Formula] = {
    name: formula for group in _GROUPS for name, formula in group.FORMULAS.items()
}
_MALFORMED = (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError, RecursionError)
NO_SHAPES = "shapes were not recorded"


PRODUCTS = {name for group in (attention, convolution, matmul) for name in group.FORMULAS}


def is_product(name: str) -> bool:
    """Return whether matrix units execute the operator: a matrix product, a convolution or attention."""
    return name in PRODUCTS or name.startswith(compiled.TEMPLATE)


def is_known(name: str) -> bool:
    """Return whether there is a formula for the operator `name`."""
    return name in FORMULAS or name.startswith(compiled.PREFIX)


def evaluate(
    name: str, shapes: str | None, dtypes: str | None, values: str | None, element: str | None = None
) -> Work:
    """Return the work of one call from the profiler's texts; if it is unknown, `why` is the reason.

    `element` is the dtype of tensor lists, if known from elsewhere.
    """
    formula = compiled.work if name.startswith(compiled.PREFIX) else FORMULAS.get(name)
    if formula is None:
        return Work(None, None, None, "no formula for this operator")
    if name == communication.RECORD:
        shapes, dtypes = "[]", "[]"  # the values give its message size
    if not shapes or not dtypes:
        return Work(None, None, None, NO_SHAPES)
    try:
        return _checked(formula(parse_call(name, shapes, dtypes, values, element)))
    except UnknownWorkError as error:
        return Work(None, None, None, str(error))
    except _MALFORMED:
        return Work(None, None, None, "its recorded arguments are malformed")


def _checked(work: Work) -> Work:
    """Return the work. Raises ValueError if a figure is negative or not finite."""
    flops = None if work.flops is None else float(work.flops)
    size = None if work.bytes is None else float(work.bytes)
    if any(x is not None and not (math.isfinite(x) and x >= 0) for x in (flops, size)):
        raise ValueError("not a figure")
    return Work(flops, size, work.dtype, work.why)
