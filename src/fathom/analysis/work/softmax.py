"""Softmax and its losses: maximum, subtract, exponential, sum and divide are five FLOPs per element."""

from __future__ import annotations

from collections.abc import Callable

from fathom.analysis.work.call import Call, Work
from fathom.analysis.work.dtypes import SIZE

_FORWARD, _BACKWARD = 5.0, 4.0  # FLOPs per element


def _softmax(call: Call) -> Work:
    """Return the work of _softmax(x, dim, half_to_float)."""
    x = call.tensor(0)
    out = SIZE["fp32"] if call.flag(2) else x.size
    return Work(_FORWARD * x.numel, x.bytes + x.numel * out, x.dtype)


def _outer(call: Call) -> Work:
    """Return the work of softmax(x, dim, dtype)."""
    x = call.tensor(0)
    return Work(_FORWARD * x.numel, x.bytes + x.numel * SIZE[call.scalar_type(2) or str(x.dtype)], x.dtype)


def _softmax_backward(call: Call) -> Work:
    """Return the work of the gradient of a softmax (grad, output, dim, input_dtype)."""
    grad, out = call.tensor(0), call.tensor(1)
    result = SIZE[call.scalar_type(3) or str(grad.dtype)]
    return Work(_BACKWARD * out.numel, grad.bytes + out.bytes + out.numel * result, out.dtype)


def _masked_softmax(call: Call) -> Work:
    """Return the work of _masked_softmax(x, mask, ...)."""
    x, mask = call.tensor(0), call.tensor(1)
    return Work(_FORWARD * x.numel, 2 * x.bytes + mask.bytes, x.dtype)


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


FORMULAS: dict[str, Callable[[Call], Work]] = {
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
}
