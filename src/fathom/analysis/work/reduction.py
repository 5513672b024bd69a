"""Reductions, softmax and its losses, and pooling: FLOPs per input element."""

from __future__ import annotations

from fathom.analysis.work.call import Call, Formula, Tensor, Work, numel, ops
from fathom.analysis.work.dtypes import SIZE, is_integral
from fathom.analysis.work.elementwise import FORMULAS as ELEMENTWISE
from fathom.analysis.work.elementwise import counted

_BOOLEANS = ("True", "False")
_SOFTMAX, _SOFTMAX_BACKWARD = 5.0, 4.0  # FLOPs per element


def _formula(
    dims: int, keep: int, flops: float = 1.0, out: str = "", dtype: int = -1, indices: bool = False
) -> Formula:
    """Return a formula; `dims`, `keep` (keepdim) and `dtype` are argument positions.

    These are the positions in the overload with dimensions. The overload that reduces everything has no
    `keep`; its dtype follows the input.
    """

    def formula(call: Call) -> Work:
        x = call.tensor(0)
        along = call.value(keep) in _BOOLEANS
        asked = call.scalar_type(dtype if along else 1) if dtype >= 0 else None
        result = _kept(x, call.ints(dims) if along and call.value(dims) else [])
        size = SIZE[asked or out or str(x.dtype)] + (SIZE["int64"] if indices and along else 0)
        return counted(flops * x.numel, x.bytes + result * size, str(x.dtype))

    return formula


def _kept(x: Tensor, dims: list[int]) -> int:
    """Return the number of elements after reducing `dims`; [] reduces all dimensions."""
    rank = len(x.shape)
    if not dims or not rank:
        return 1
    reduced = {range(rank)[d] for d in dims}
    return numel([size for i, size in enumerate(x.shape) if i not in reduced])


def _sum(call: Call) -> Work:
    widened = "int64" if is_integral(str(call.tensor(0).dtype)) else ""
    return _formula(1, 2, out=widened, dtype=3)(call)


def _max(call: Call) -> Work:
    """Return the work of max(x), of max(x, dim, keepdim) with indices, or of max(x, other) by element."""
    if call.has(1):
        return ELEMENTWISE["aten::maximum"](call)
    return _formula(1, 2, indices=True)(call)


def _softmax(call: Call) -> Work:
    """Return the work of _softmax(x, dim, half_to_float)."""
    x = call.tensor(0)
    out = SIZE["fp32"] if call.flag(2) else x.size
    return Work(_SOFTMAX * x.numel, x.bytes + x.numel * out, x.dtype)


def _outer(call: Call) -> Work:
    """Return the work of softmax(x, dim, dtype)."""
    x = call.tensor(0)
    return Work(_SOFTMAX * x.numel, x.bytes + x.numel * SIZE[call.scalar_type(2) or str(x.dtype)], x.dtype)


def _softmax_backward(call: Call) -> Work:
    """Return the work of the gradient of a softmax (grad, output, dim, input_dtype)."""
    grad, out = call.tensor(0), call.tensor(1)
    result = SIZE[call.scalar_type(3) or str(grad.dtype)]
    return Work(_SOFTMAX_BACKWARD * out.numel, grad.bytes + out.bytes + out.numel * result, out.dtype)


def _masked_softmax(call: Call) -> Work:
    """Return the work of _masked_softmax(x, mask, ...)."""
    x, mask = call.tensor(0), call.tensor(1)
    return Work(_SOFTMAX * x.numel, 2 * x.bytes + mask.bytes, x.dtype)


def _nll_loss(call: Call) -> Work:
    """Return the work of nll_loss_forward(x, target, weight, reduction, ...): it reads an element per row."""
    x, target = call.tensor(0), call.tensor(1)
    weight = call.tensor(2).bytes if call.has(2) else 0.0
    out = target.numel if call.ints(3)[0] == 0 else 2
    return Work(float(target.numel), target.bytes + (target.numel + out) * x.size + weight, x.dtype)


def _nll_loss_backward(call: Call) -> Work:
    """Return the work of (grad, x, target, ...), which writes one element per row of a zeroed tensor."""
    grad, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
    return Work(float(target.numel), grad.bytes + target.bytes + target.numel * x.size, x.dtype)


def _max_pool(call: Call) -> Work:
    """Return the work of max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)."""
    x = call.tensor(0)
    kernel = call.ints(1)
    stride, padding, dilation = (call.ints(i) or kernel for i in (2, 3, 4))
    up = call.flag(5)
    rank = len(kernel)
    spatial = [
        _size(x.shape[i - rank], kernel[i], stride[i % len(stride)], padding[i % len(padding)],
              dilation[i % len(dilation)], up)
        for i in range(rank)
    ]  # fmt: skip
    out = numel(x.shape[:-rank]) * numel(spatial)
    return Work(float(out * numel(kernel)), x.bytes + out * (x.size + 8), x.dtype)


def _size(n: int, kernel: int, stride: int, padding: int, dilation: int, up: bool) -> int:
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    size = (-(-room // stride) if up else room // stride) + 1
    return size - 1 if up and (size - 1) * stride >= n + padding else size


def _pool_backward(call: Call) -> Work:
    """Return the work of (grad_output, x, ..., indices): each gradient is added at its index in the input."""
    grad, x = call.tensor(0), call.tensor(1)
    return Work(float(grad.numel), grad.bytes + 8 * grad.numel + x.bytes, x.dtype)


def _adaptive(call: Call) -> Work:
    x = call.tensor(0)
    size = call.ints(1)
    out = numel(x.shape[: -len(size)]) * numel(size)
    return Work(float(x.numel), x.bytes + out * x.size, x.dtype)


FORMULAS = {
    **ops("sum", _sum),
    **ops("mean prod", _formula(1, 2, dtype=3)),
    **ops("amax amin", _formula(1, 2)),
    **ops("max min", _max),
    **ops("argmax argmin", _formula(1, 2, out="int64")),
    **ops("all any", _formula(1, 2, out="bool")),
    **ops("var std", _formula(1, 3, flops=3)),
    **ops("linalg_vector_norm", _formula(2, 3, flops=2, dtype=4)),
    **ops("norm", _formula(2, 3, flops=2)),
    **ops("softmax log_softmax", _outer),
    **ops("_softmax _log_softmax", _softmax),
    **ops("_softmax_backward_data _log_softmax_backward_data", _softmax_backward),
    **ops("_masked_softmax", _masked_softmax),
    **ops("nll_loss_forward nll_loss2d_forward", _nll_loss),
    **ops("nll_loss_backward nll_loss2d_backward", _nll_loss_backward),
    **ops("max_pool2d_with_indices", _max_pool),
    **ops("max_pool2d_with_indices_backward", _pool_backward),
    **ops("_adaptive_avg_pool2d", _adaptive),
}
