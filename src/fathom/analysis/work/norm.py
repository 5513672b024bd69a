"""Normalisations; FLOPs per element: mean, centre, square, sum, scale, and weight and bias if present.

Statistics (mean, reciprocal deviation) are 32-bit numbers, one per row or channel.
"""

from __future__ import annotations

from collections.abc import Callable

from fathom.analysis.work.call import Call, Work, numel

_FORWARD, _RMS, _BACKWARD = 7.0, 4.0, 11.0  # FLOPs per element


def _small(call: Call, positions: tuple[int, ...]) -> float:
    return sum(call.tensor(i).bytes for i in positions if call.has(i))


def _layer_norm(call: Call) -> Work:
    """Return the work of native_layer_norm(x, normalized_shape, weight, bias, eps)."""
    x = call.tensor(0)
    rows = x.numel // max(numel(call.ints(1)), 1)
    return Work(_FORWARD * x.numel, 2 * x.bytes + _small(call, (2, 3)) + 8.0 * rows, x.dtype)


def _backward(statistics: tuple[int, int], weight: int) -> Callable[[Call], Work]:
    """Return a formula for native_*_norm_backward(grad, x, ...).

    `statistics` are the positions of mean and reciprocal deviation, `weight` is that of the weight.
    """

    def formula(call: Call) -> Work:
        grad, x = call.tensor(0), call.tensor(1)
        small = _small(call, statistics) + 3 * _small(call, (weight,))
        return Work(_BACKWARD * x.numel, grad.bytes + 2 * x.bytes + small, x.dtype)

    return formula


def _group_norm(call: Call) -> Work:
    """Return the work of native_group_norm(x, weight, bias, N, C, HxW, groups, eps)."""
    x = call.tensor(0)
    rows = call.ints(3)[0] * call.ints(6)[0]
    return Work(_FORWARD * x.numel, 2 * x.bytes + _small(call, (1, 2)) + 8.0 * rows, x.dtype)


def _batch_norm(call: Call) -> Work:
    """Return the work of a batch norm (x, weight, bias, mean, var, training, ...).

    The running statistics are read and, in training, written.
    """
    x = call.tensor(0)
    updates = 2 if call.flag(5) else 1
    small = _small(call, (1, 2)) + updates * _small(call, (3, 4))
    return Work(_FORWARD * x.numel, 2 * x.bytes + small, x.dtype)


def _batch_norm_backward(first: int, second: int, weight: int) -> Callable[[Call], Work]:
    """Return a formula; `first` and `second` are the positions of gradient and input in either order."""

    def formula(call: Call) -> Work:
        a, b = call.tensor(first), call.tensor(second)
        return Work(_BACKWARD * b.numel, a.bytes + 2 * b.bytes + 3 * _small(call, (weight,)), b.dtype)

    return formula


def _rms_norm(call: Call) -> Work:
    """Return the work of _fused_rms_norm(x, normalized_shape, weight, eps)."""
    x = call.tensor(0)
    rows = x.numel // max(numel(call.ints(1)), 1)
    return Work(_RMS * x.numel, 2 * x.bytes + _small(call, (2,)) + 4.0 * rows, x.dtype)


def _rms_norm_backward(call: Call) -> Work:
    """Return the work of _fused_rms_norm_backward(grad, x, normalized_shape, rstd, weight, output_mask)."""
    grad, x = call.tensor(0), call.tensor(1)
    small = _small(call, (3,)) + 2 * _small(call, (4,))
    return Work(2 * _RMS * x.numel, grad.bytes + 2 * x.bytes + small, x.dtype)


def _vllm_rms_norm(call: Call) -> Work:
    """Return the work of _C::rms_norm(out, x, weight, eps)."""
    out, x = call.tensor(0), call.tensor(1)
    return Work(_RMS * x.numel, out.bytes + x.bytes + _small(call, (2,)), x.dtype)


def _vllm_fused_add(call: Call) -> Work:
    """Return the work of _C::fused_add_rms_norm(x, residual, weight, eps), which reads and writes both."""
    x, residual = call.tensor(0), call.tensor(1)
    moved = 2 * (x.bytes + residual.bytes) + _small(call, (2,))
    return Work((_RMS + 1) * x.numel, moved, x.dtype)


FORMULAS: dict[str, Callable[[Call], Work]] = {
    "aten::layer_norm": _layer_norm,
    "aten::native_layer_norm": _layer_norm,
    "aten::native_layer_norm_backward": _backward((3, 4), 5),
    "aten::native_group_norm": _group_norm,
    "aten::native_group_norm_backward": _backward((2, 3), 4),
    "aten::native_batch_norm": _batch_norm,
    "aten::_native_batch_norm_legit": _batch_norm,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::miopen_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": _batch_norm_backward(0, 1, 2),
    "aten::cudnn_batch_norm_backward": _batch_norm_backward(1, 0, 2),
    "aten::miopen_batch_norm_backward": _batch_norm_backward(1, 0, 2),
    "aten::_fused_rms_norm": _rms_norm,
    "aten::_fused_rms_norm_backward": _rms_norm_backward,
    "_C::rms_norm": _vllm_rms_norm,
    "_C::fused_add_rms_norm": _vllm_fused_add,
}
