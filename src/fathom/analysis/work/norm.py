"""Normalisations; FLOPs per element: mean, centre, square, sum, scale, and weight and bias if present.

Statistics (mean, reciprocal deviation) are 32-bit numbers, one per row or channel.
"""

from __future__ import annotations

from fathom.analysis.work.call import Call, Formula, Work, numel, ops

_FORWARD, _RMS, _BACKWARD = 7.0, 4.0, 11.0  # FLOPs per element


def _small(call: Call, positions: tuple[int, ...]) -> float:
    return sum(call.tensor(i).bytes for i in positions if call.has(i))


def _normalised(flops: float, parameters: tuple[int, ...], statistics: float) -> Formula:
    """Return a formula for a norm (x, normalized_shape, weight, ...), with bytes of statistics per row."""

    def formula(call: Call) -> Work:
        x = call.tensor(0)
        rows = x.numel // max(numel(call.ints(1)), 1)
        moved = 2 * x.bytes + _small(call, parameters) + statistics * rows
        return Work(flops * x.numel, moved, x.dtype)

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


def _backward(
    statistics: tuple[int, ...], weight: int, flops: float = _BACKWARD, gradients: int = 3, grad: int = 0
) -> Formula:
    """Return a formula for the backward pass of a norm, with the positions of its arguments.

    `statistics` are mean and reciprocal deviation. `gradients` is how often the bytes of the weight
    move, its gradient and that of the bias included. The input is beside the gradient `grad`, at 0 or 1.
    """

    def formula(call: Call) -> Work:
        gradient, x = call.tensor(grad), call.tensor(1 - grad)
        small = _small(call, statistics) + gradients * _small(call, (weight,))
        return Work(flops * x.numel, gradient.bytes + 2 * x.bytes + small, x.dtype)

    return formula


def _vllm_rms_norm(call: Call) -> Work:
    """Return the work of _C::rms_norm(out, x, weight, eps)."""
    out, x = call.tensor(0), call.tensor(1)
    return Work(_RMS * x.numel, out.bytes + x.bytes + _small(call, (2,)), x.dtype)


def _vllm_fused_add(call: Call) -> Work:
    """Return the work of _C::fused_add_rms_norm(x, residual, weight, eps), which reads and writes both."""
    x, residual = call.tensor(0), call.tensor(1)
    moved = 2 * (x.bytes + residual.bytes) + _small(call, (2,))
    return Work((_RMS + 1) * x.numel, moved, x.dtype)


FORMULAS = {
    **ops("layer_norm native_layer_norm", _normalised(_FORWARD, (2, 3), 8.0)),
    **ops("native_layer_norm_backward", _backward((3, 4), 5)),
    **ops("native_group_norm", _group_norm),
    **ops("native_group_norm_backward", _backward((2, 3), 4)),
    **ops("native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm", _batch_norm),
    **ops("native_batch_norm_backward", _backward((), 2)),
    **ops("cudnn_batch_norm_backward miopen_batch_norm_backward", _backward((), 2, grad=1)),
    **ops("_fused_rms_norm", _normalised(_RMS, (2,), 4.0)),
    **ops("_fused_rms_norm_backward", _backward((3,), 4, flops=2 * _RMS, gradients=2)),
    **ops("rms_norm", _vllm_rms_norm, "_C"),
    **ops("fused_add_rms_norm", _vllm_fused_add, "_C"),
}
