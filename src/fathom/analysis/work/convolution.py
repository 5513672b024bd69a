"""Convolutions: two FLOPs per weight and output position (input position, if transposed).

The gradient of the bias is a sum, which PyTorch runs as a separate op.
"""

from __future__ import annotations

import json
import math

import msgspec
from msgspec.structs import replace

from fathom.analysis.work.call import Call, Formula, Tensor, UnknownWorkError, Work, numel


class ConvolutionLayout(msgspec.Struct, frozen=True):
    """Positions of a convolution's arguments after input and filter; -1: none."""

    stride: int
    padding: int
    dilation: int = -1
    groups: int = -1
    bias: int = -1
    transposed: int = -1  # position of the flag
    output_padding: int = -1
    is_transposed: bool = False
    more: tuple[int, ...] = ()  # positions of further tensors that it reads


_COMMON = ConvolutionLayout(bias=2, stride=3, padding=4, dilation=5, groups=6)
_FLAGGED = replace(_COMMON, transposed=6, output_padding=7, groups=8)
_VENDOR = ConvolutionLayout(bias=2, padding=3, stride=4, dilation=5, groups=6)
_SLOW = ConvolutionLayout(bias=3, stride=4, padding=5)
_DILATED = replace(_SLOW, dilation=6)
LAYOUTS = {
    "aten::convolution": _FLAGGED,
    "aten::_convolution": _FLAGGED,
    "aten::convolution_overrideable": _FLAGGED,
    "aten::conv1d": _COMMON,
    "aten::conv2d": _COMMON,
    "aten::conv3d": _COMMON,
    "aten::cudnn_convolution": ConvolutionLayout(padding=2, stride=3, dilation=4, groups=5),
    "aten::cudnn_convolution_transpose": ConvolutionLayout(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6, is_transposed=True
    ),
    "aten::cudnn_convolution_relu": _COMMON,
    "aten::cudnn_convolution_add_relu": ConvolutionLayout(
        more=(2,), bias=4, stride=5, padding=6, dilation=7, groups=8
    ),
    "aten::miopen_convolution": _VENDOR,
    "aten::miopen_depthwise_convolution": _VENDOR,
    "aten::miopen_convolution_transpose": ConvolutionLayout(
        bias=2, padding=3, output_padding=4, stride=5, dilation=6, groups=7, is_transposed=True
    ),
    "aten::mkldnn_convolution": _VENDOR,
    "aten::_slow_conv2d_forward": _SLOW,
    "aten::slow_conv3d_forward": _SLOW,
    "aten::_conv_depthwise2d": _DILATED,
    "aten::conv_depthwise3d": _DILATED,
    "aten::slow_conv_dilated2d": _DILATED,
    "aten::slow_conv_dilated3d": _DILATED,
}


def _forward(layout: ConvolutionLayout) -> Formula:
    def formula(call: Call) -> Work:
        x, weight = _batched(call.tensor(0), call.tensor(1)), call.tensor(1)
        transposed = layout.is_transposed or (layout.transposed >= 0 and call.flag(layout.transposed))
        shape = _transposed_shape if transposed else _direct_shape
        out = shape(call, layout, x.shape, weight.shape)
        if not all(size > 0 for size in out[2:]):
            raise UnknownWorkError("its shapes are incompatible: the output would be empty")
        extra = sum(call.tensor(i).bytes for i in (layout.bias, *layout.more) if i >= 0 and call.has(i))
        read = x.bytes * (1.0 if transposed else _touched(x.shape, weight.shape, out))
        moved = read + weight.bytes + numel(out) * x.size + extra
        return Work(_flops(x.shape, weight, out, transposed), moved, x.dtype)

    return formula


def _batched(x: Tensor, weight: Tensor) -> Tensor:
    return Tensor((1, *x.shape), x.dtype) if len(x.shape) == len(weight.shape) - 1 else x


def _touched(x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...]) -> float:
    """Return the share of the input that is read: a filter shorter than its stride skips the rest."""
    sizes = zip(x[2:], weight[2:], out[2:], strict=True)
    return math.prod(min(1.0, kernel * positions / max(n, 1)) for n, kernel, positions in sizes)


def _flops(x: tuple[int, ...], weight: Tensor, out: tuple[int, ...], transposed: bool) -> float:
    """Return the FLOPs of a filter [out, in / groups, *kernel], if transposed [in, out / groups, *kernel]."""
    positions = x if transposed else out
    return 2.0 * positions[0] * numel(positions[2:]) * weight.numel


def _direct_shape(
    call: Call, layout: ConvolutionLayout, x: tuple[int, ...], weight: tuple[int, ...]
) -> tuple[int, ...]:
    spans, stride, padding = _geometry(call, layout, weight[2:])
    sizes = zip(x[2:], spans, stride, padding, strict=True)
    return (x[0], weight[0], *((n + 2 * pad - span) // step + 1 for n, span, step, pad in sizes))


def _transposed_shape(
    call: Call, layout: ConvolutionLayout, x: tuple[int, ...], weight: tuple[int, ...]
) -> tuple[int, ...]:
    spans, stride, padding = _geometry(call, layout, weight[2:])
    added = _spatial(call, layout.output_padding, len(spans), 0)
    sizes = zip(x[2:], spans, stride, padding, added, strict=True)
    channels = weight[1] * call.ints(layout.groups)[0]
    return (x[0], channels, *((n - 1) * step - 2 * pad + span + a for n, span, step, pad, a in sizes))


def _geometry(
    call: Call, layout: ConvolutionLayout, kernel: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]]:
    """Return the input positions per output position, the strides and the paddings, by dimension."""
    rank = len(kernel)
    dilation = _spatial(call, layout.dilation, rank, 1)
    spans = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    return spans, _spatial(call, layout.stride, rank, 1), _spatial(call, layout.padding, rank, 0)


def _spatial(call: Call, position: int, rank: int, default: int) -> list[int]:
    given = call.ints(position) if position >= 0 else [default]
    return given * rank if len(given) == 1 else given


def _backward(call: Call) -> Work:
    """Return the work of the requested gradients (input, filter), each with the FLOPs of the forward pass."""
    grad, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    mask = json.loads(call.value(10).lower())
    requested, transposed = [bool(mask[0]), bool(mask[1])], call.flag(7)
    flops = _flops(x.shape, weight, grad.shape, transposed)
    read = x.bytes * (1.0 if transposed else _touched(x.shape, weight.shape, grad.shape))
    moved = grad.bytes + requested[0] * x.bytes + requested[1] * read + sum(requested) * weight.bytes
    return Work(flops * sum(requested), moved if any(requested) else 0.0, x.dtype)


FORMULAS = {name: _forward(layout) for name, layout in LAYOUTS.items()} | {
    "aten::convolution_backward": _backward,
}
