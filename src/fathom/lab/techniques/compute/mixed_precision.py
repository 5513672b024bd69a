"""
title: A block of a network in bf16
saves: time of the tensor cores, and HBM bandwidth
idea: >-
  Tensor cores multiply bf16 at twice the rate of TF32 and many times that of float32, and every activation
  takes half the bytes. Sums stay in float32, weights may stay so too and are cast on the way in.
cost: >-
  Eight bits of mantissa in what is stored. The casts of weights read them in float32 and write them in
  bf16: cast once where weights don't change in between.
not_when: >-
  The step is bound by launches, or by operations that need float32 anyway (norms, losses and softmax keep
  it inside).
shows:
  - what: kernel families of the products
    plain: sgemm
    tuned: bf16 (wgmma or hmma)
findings: [kernels-no-mixed-precision, kernels-tensor-cores-idle]
precision: bf16
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

Weights = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Weights]:
    draw = Draw(seed, device)
    width = draw.size(gpu=2048, cpu=32)
    up = draw.normal(4 * width, width, scale=width**-0.5)
    down = draw.normal(width, 4 * width, scale=(4 * width) ** -0.5)
    return draw.normal(draw.size(gpu=8192, cpu=24), width), (up, down)


def _block(x: Tensor, weights: Weights) -> Tensor:
    up, down = weights
    return F.linear(F.gelu(F.linear(x, up)), down)


def plain(x: Tensor, weights: Weights) -> Tensor:
    return _block(x, weights)


def tuned(x: Tensor, weights: Weights) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return _block(x, weights).float()


def work(x: Tensor, weights: Weights) -> dict[str, float | str]:
    unit = "matmul.bf16" if x.is_cuda else "vector.fp32"
    return {"flops": 4.0 * len(x) * weights[0].numel(), "unit": unit}
