"""
title: Weights in eight bits by torchao
saves: HBM bandwidth of the weights
idea: >-
  While one token at a time is decoded a layer's time is that of reading its weights. torchao replaces a
  linear layer's weight by one in int8 with a scale a row; the compiler widens it on its way to the
  multiplication, so that half the bytes of bf16 are read. No kernel has to be written.
cost: >-
  Half the time at best, and compilation, which tries several ways to share the work; rounding makes an
  error of about 0.8 % of a row's size.
not_when: >-
  The layer is not compiled: then the widened weights are written to memory and read again, which is slower
  than bf16. Nor where many rows are multiplied at once.
shows:
  - what: dram__bytes_read.sum
    plain: two a weight
    tuned: one a weight
findings: [kernels-weight-bound-decode]
needs: {packages: [torchao]}
precision: bf16
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchao.quantization import Int8Tensor, PerRow

from fathom.lab import Draw

# Without this a product with one row is left to the library, which takes no int8; it autotunes besides.
OPTIONS = {"coordinate_descent_tuning": True}
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    out, width = draw.size(gpu=65536, cpu=256), draw.size(gpu=8192, cpu=256)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    weight = draw.normal(out, width, dtype=dtype, scale=width**-0.5)
    narrow = Int8Tensor.from_hp(weight, PerRow())  # as quantize_ does with Int8WeightOnlyConfig
    return draw.normal(1, width, dtype=dtype), weight, narrow.qdata, narrow.scale


def plain(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


def tuned(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    held = Int8Tensor(narrow, scale, [1, narrow.shape[1]], x.dtype)
    return _compiled()(x, held)


@cache
def _compiled() -> Any:
    return torch.compile(F.linear, options=OPTIONS)


def reference(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


def work(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> dict[str, float]:
    return {"bytes": narrow.nbytes}
