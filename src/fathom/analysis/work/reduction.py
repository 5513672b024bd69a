"""Reductions, softmax and its losses, and pooling: FLOPs per input element."""

from __future__ import annotations

from collections.abc import Callable

from fathom.analysis.work.call import Call, Tensor, Work, numel
from fathom.analysis.work.dtypes import SIZE, is_integral
from fathom.analysis.work.elementwise import FORMULAS as ELEMENTWISE
from fathom.analysis.work.elementwise import counted

_BOOLEANS = ("True", "False")
_SOFTMAX, _SOFTMAX_BACKWARD = 5.0, 4.0  # FLOPs per element


def _formula(
    dims: int, keep: int, flops: float = 1.0, out: str = "", dtype: int = -1, indices: bool = False
) -> Callable[[Call], Work]:
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
    """Return the work of nll_loss_forward(x, target, weight, reduction, ...).

    It reads one element per row.
    """
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


FORMULAS: dict[str, Callable[[Call], Work]] = {
    "aten::sum": _sum,
    "aten::mean": _formula(1, 2, dtype=3),
    "aten::prod": _formula(1, 2, dtype=3),
    "aten::amax": _formula(1, 2),
    "aten::amin": _formula(1, 2),
    "aten::max": _max,
    "aten::min": _max,
    "aten::argmax": _formula(1, 2, out="int64"),
    "aten::argmin": _formula(1, 2, out="int64"),
    "aten::all": _formula(1, 2, out="bool"),
    "aten::any": _formula(1, 2, out="bool"),
    "aten::var": _formula(1, 3, flops=3),
    "aten::std": _formula(1, 3, flops=3),
    "aten::linalg_vector_norm": _formula(2, 3, flops=2, dtype=4),
    "aten::norm": _formula(2, 3, flops=2),
    "aten::softmax": _outer,
    "aten::log_softmax": _outer,
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::_log_softmax_backward_data": _softmax_backward,
    "aten::_masked_softmax": _masked_softmax,
    "aten::nll_loss_forward": _nll_loss,
    "aten::nll_loss2d_forward": _nll_loss,
    "aten::nll_loss_backward": _nll_loss_backward,
    "aten::nll_loss2d_backward": _nll_loss_backward,
    "aten::max_pool2d_with_indices": _max_pool,
    "aten::max_pool2d_with_indices_backward": _pool_backward,
    "aten::_adaptive_avg_pool2d": _adaptive,
}
