"""Pooling: one FLOP per element of a window."""

from __future__ import annotations

from fathom.analysis.work.call import Call, Work, numel


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


def _backward(call: Call) -> Work:
    """Return the work of (grad_output, x, ..., indices): each gradient is added at its index in the input."""
    grad, x = call.tensor(0), call.tensor(1)
    return Work(float(grad.numel), grad.bytes + 8 * grad.numel + x.bytes, x.dtype)


def _adaptive(call: Call) -> Work:
    x = call.tensor(0)
    size = call.ints(1)
    out = numel(x.shape[: -len(size)]) * numel(size)
    return Work(float(x.numel), x.bytes + out * x.size, x.dtype)


FORMULAS = {
    "aten::max_pool2d_with_indices": _max_pool,
    "aten::max_pool2d_with_indices_backward": _backward,
    "aten::_adaptive_avg_pool2d": _adaptive,
}
