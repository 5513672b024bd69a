"""Matrix products: M x K by K x N is 2 M N K FLOPs; also grouped ones, and FP8, FP4 and INT8 with scales."""

from __future__ import annotations

import math

from fathom.analysis.work.call import Call, Formula, Tensor, UnknownWorkError, Work, ops, same
from fathom.analysis.work.dtypes import SIZE


def product(call: Call, a: Tensor, b: Tensor, out: float | None = None, extra: float = 0.0) -> Work:
    """Return the work of [..., M, K] by [..., K, N] with broadcast batches.

    `out` is the bytes per element of the result, by default those of `a`; `extra` is added to the bytes.
    """
    m, k = a.shape[-2:]
    n = b.shape[-1]
    same(k, b.shape[-2])
    batch = math.prod(broadcast(a.shape[:-2], b.shape[:-2]))
    result = batch * m * n * (a.size if out is None else out)
    packed = 2 if a.dtype == "fp4" else 1
    return Work(2.0 * batch * m * n * k * packed, a.bytes + b.bytes + result + extra, a.dtype)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast shape, by PyTorch's rules. Raises UnknownWorkError if shapes do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(_common(sizes) for sizes in zip(*padded, strict=True))


def _common(sizes: tuple[int, ...]) -> int:
    large = {size for size in sizes if size != 1}
    if len(large) > 1:
        raise UnknownWorkError(f"its shapes are incompatible: {sorted(large)}")
    return large.pop() if large else 1


def _mm(call: Call) -> Work:
    out = call.tensor(2).size if call.has(2) else None
    return product(call, call.tensor(0), call.tensor(1), out)


def _addmm(call: Call) -> Work:
    unused = call.values and call.value(3) in ("0", "0.")  # beta
    bias = 0.0 if unused else call.tensor(0).bytes
    return product(call, call.tensor(1), call.tensor(2), extra=bias)


def _vectors(call: Call, matrix: Tensor, vector: Tensor, extra: float = 0.0) -> Work:
    column = Tensor((*vector.shape, 1), vector.dtype)
    return product(call, matrix, column, extra=extra)


def _mv(call: Call) -> Work:
    return _vectors(call, call.tensor(0), call.tensor(1))


def _addmv(call: Call) -> Work:
    return _vectors(call, call.tensor(1), call.tensor(2), extra=call.tensor(0).bytes)


def _dot(call: Call) -> Work:
    a, b = call.tensor(0), call.tensor(1)
    return Work(2.0 * same(a.numel, b.numel), a.bytes + b.bytes + a.size, a.dtype)


def _addbmm(call: Call) -> Work:
    bias, a, b = call.tensor(0), call.tensor(1), call.tensor(2)
    batch, m, k = a.shape
    n = b.shape[2]
    return Work(2.0 * batch * m * n * k, a.bytes + b.bytes + bias.bytes + m * n * a.size, a.dtype)


def _linear(call: Call) -> Work:
    x, weight = call.tensor(0), call.tensor(1)
    bias = call.tensor(2).bytes if call.has(2) else 0.0
    rows = Tensor((math.prod(x.shape[:-1]), x.shape[-1]), x.dtype)
    return product(call, rows, Tensor(weight.shape[::-1], weight.dtype), extra=bias)


def _matmul(call: Call) -> Work:
    a, b = call.tensor(0), call.tensor(1)
    if len(a.shape) == 1 and len(b.shape) == 1:
        return _dot(call)
    if len(a.shape) == 1:
        a = Tensor((1, *a.shape), a.dtype)
    if len(b.shape) == 1:
        b = Tensor((*b.shape, 1), b.dtype)
    return product(call, a, b)


def _scaled_mm(call: Call) -> Work:
    a, b = call.tensor(0), call.tensor(1)
    scales = sum(call.tensor(i).bytes for i in (2, 3, 4, 5) if call.has(i))
    return product(call, a, b, SIZE[call.scalar_type(6) or str(a.dtype)], scales)


def _int_mm(call: Call) -> Work:
    return product(call, call.tensor(0), call.tensor(1), out=SIZE["int32"])


def _grouped(offsets: int, dtype: int, extras: tuple[int, ...]) -> Formula:
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


def _recurrent(passes: int) -> Formula:
    """Return a formula of a recurrent layer: each element is multiplied by two matrices in each pass.

    The backward pass multiplies twice: for the gradients of the input and of the weights.
    """

    def formula(call: Call) -> Work:
        x, weight, recurrent = (call.tensor(i) for i in range(3))
        same(x.shape[-1], weight.shape[1])
        elements = x.numel / x.shape[-1]
        result = elements * recurrent.shape[1] * x.size
        flops = 2.0 * elements * (weight.numel + recurrent.numel)
        return Work(passes * flops, passes * (x.bytes + weight.bytes + recurrent.bytes + result), x.dtype)

    return formula


FORMULAS = {
    **ops("mm bmm", _mm),
    **ops("matmul", _matmul),
    **ops("linear", _linear),
    **ops("addmm addmm_ _addmm_activation baddbmm baddbmm_", _addmm),
    **ops("addbmm", _addbmm),
    **ops("mv", _mv),
    **ops("addmv addmv_", _addmv),
    **ops("dot vdot", _dot),
    **ops("_scaled_mm", _scaled_mm),
    **ops("_int_mm", _int_mm),
    **ops("_grouped_mm", _grouped(2, 4, (2, 3))),
    **ops("mkldnn_rnn_layer", _recurrent(1)),
    **ops("mkldnn_rnn_layer_backward", _recurrent(2)),
    **ops("_scaled_grouped_mm", _grouped(4, 7, (2, 3, 4, 5))),
}
