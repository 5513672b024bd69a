"""
title: Convolutions in channels-last
saves: transpositions around tensor-core convolutions
idea: >-
  Tensor cores convolve with the channels innermost. From NCHW cuDNN turns every input and output, or takes
  a slower algorithm; a model and its input in channels-last keep that layout from layer to layer.
cost: >-
  The conversion of the input reads and writes it once; each layer that is spared saves two of those.
not_when: >-
  Few channels (the first layer of three), depthwise convolutions in float32, or a model that falls back to
  NCHW in between: then the layout is turned more often than before.
shows:
  - what: families of kernels that turn nchw into nhwc and back
    plain: two a convolution
    tuned: none
findings: [kernels-not-channels-last]
reduction: 2304
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

DEPTH = 4
Filters = list[Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Filters]:
    draw = Draw(seed, device)
    channels, batch, extent = (draw.size(gpu=g, cpu=c) for g, c in ((256, 8), (64, 2), (56, 12)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    scale = (9 * channels) ** -0.5
    filters = [draw.normal(channels, channels, 3, 3, dtype=dtype, scale=scale) for _ in range(DEPTH)]
    return draw.normal(batch, channels, extent, extent, dtype=dtype), filters


def _convolved(x: Tensor, filters: Filters) -> Tensor:
    for weight in filters:
        x = F.relu(F.conv2d(x, weight, padding=1))
    return x.mean(dim=(2, 3))


def plain(x: Tensor, filters: Filters) -> Tensor:
    return _convolved(x, filters)


def tuned(x: Tensor, filters: Filters) -> Tensor:
    last = torch.channels_last
    return _convolved(x.to(memory_format=last), [weight.to(memory_format=last) for weight in filters])


def work(x: Tensor, filters: Filters) -> dict[str, float | str]:
    weights = sum(weight.numel() for weight in filters)
    positions = len(x) * x.shape[2] * x.shape[3]
    unit = "matmul.bf16" if x.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 2 * weights * positions, "unit": unit}
