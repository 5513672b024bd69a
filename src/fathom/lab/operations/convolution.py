"""Convolve images with cuDNN.

    fathom lab run channels-last

in_nchw keeps channels outermost; channels_last has them innermost, as tensor cores need them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, matmul_unit

DEPTH = 4
Filters = list[Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Filters]:
    draw = Draw(seed, device)
    channels, batch, extent = draw.shape([(256, 8), (64, 2), (56, 12)])
    scale = (9 * channels) ** -0.5
    filters = [draw.normal(channels, channels, 3, 3, dtype=draw.dtype, scale=scale) for _ in range(DEPTH)]
    return draw.normal(batch, channels, extent, extent, dtype=draw.dtype), filters


def _convolved(x: Tensor, filters: Filters) -> Tensor:
    for weight in filters:
        x = F.relu(F.conv2d(x, weight, padding=1))
    return x.mean(dim=(2, 3))


def in_nchw(x: Tensor, filters: Filters) -> Tensor:
    return _convolved(x, filters)


def channels_last(x: Tensor, filters: Filters) -> Tensor:
    """title: Convolve in channels-last layout
    pair: {group: framework, plain: in_nchw}
    saves: transposes around tensor-core convolutions
    idea: Tensor cores convolve with channels innermost. With NCHW, cuDNN transposes every input and output or
      takes a slower algorithm. A model and its input in channels-last keep that layout from layer to layer.
    cost: Converting the input reads and writes it once. Each layer saves two passes of this kind.
    not_when: There are few channels (a first layer of three), depthwise convolutions in float32, or
      operations in between that return to NCHW, since the layout then changes more often than before.
    shows: {kernels that convert between nchw and nhwc: two per convolution → none}
    tips: [operators.channels-last]
    findings: {kernels-not-channels-last: 1}
    proof: {reduction: 2304}"""
    last = torch.channels_last
    return _convolved(x.to(memory_format=last), [weight.to(memory_format=last) for weight in filters])


def work(x: Tensor, filters: Filters) -> dict[str, float | str]:
    weights = sum(weight.numel() for weight in filters)
    positions = len(x) * x.shape[2] * x.shape[3]
    return {"flops": 2 * weights * positions, "unit": matmul_unit(x)}
