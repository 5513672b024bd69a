"""Grouped and scaled matrix products: mixtures of experts, and FP8, FP4 and INT8 with scales."""

from __future__ import annotations

from collections.abc import Callable

from fathom.analysis.work.call import Call, Tensor, UnknownWorkError, Work, same
from fathom.analysis.work.dtypes import SIZE
from fathom.analysis.work.matmul import product


def _scaled_mm(call: Call) -> Work:
    a, b = call.tensor(0), call.tensor(1)
    scales = sum(call.tensor(i).bytes for i in (2, 3, 4, 5) if call.has(i))
    return product(call, a, b, SIZE[call.scalar_type(6) or str(a.dtype)], scales)


def _int_mm(call: Call) -> Work:
    return product(call, call.tensor(0), call.tensor(1), out=SIZE["int32"])


def _grouped(offsets: int, dtype: int, extras: tuple[int, ...]) -> Callable[[Call], Work]:
    """Return a formula, given the positions of arguments. Every row is in a group."""

    def formula(call: Call) -> Work:
        a, b = call.tensor(0), call.tensor(1)
        groups = call.tensor(offsets).numel if call.has(offsets) else 0
        macs, result = _grouped_sizes(a, b, groups)
        out = result * SIZE[call.scalar_type(dtype) or str(a.dtype)]
        more = sum(call.tensor(i).bytes for i in extras if call.has(i))
        packed = 2 if a.dtype == "fp4" else 1
        return Work(2.0 * macs * packed, a.bytes + b.bytes + out + more, a.dtype)

    return formula


def _grouped_sizes(a: Tensor, b: Tensor, groups: int) -> tuple[int, int]:
    """Return the multiply-adds and the elements of the result.

    The groups of a 2-D operand lie along its free dimension.
    """
    ranks = len(a.shape), len(b.shape)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    same(k, b.shape[-2])
    if ranks == (3, 3):
        same(a.shape[0], b.shape[0])
        return a.shape[0] * m * n * k, a.shape[0] * m * n
    if ranks == (2, 3) or ranks == (3, 2):
        return m * n * k, m * n
    if ranks == (2, 2) and groups:
        return m * n * k, groups * m * n
    raise UnknownWorkError("the groups of its operands were not recorded")


FORMULAS = {
    "aten::_scaled_mm": _scaled_mm,
    "aten::_int_mm": _int_mm,
    "aten::_grouped_mm": _grouped(2, 4, (2, 3)),
    "aten::_scaled_grouped_mm": _grouped(4, 7, (2, 3, 4, 5)),
}
