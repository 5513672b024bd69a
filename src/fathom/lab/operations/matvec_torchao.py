"""Multiply int8 weights by one vector while decoding, with torchao.

    fathom lab run torchao-int8

in_bf16 reads two bytes per weight, torchao_int8 one, without a hand-written kernel.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchao.quantization import Int8Tensor, PerRow

from fathom.lab import Draw, traffic

# Otherwise a product with one row is left to the library, which takes no int8. This also autotunes.
OPTIONS = {"coordinate_descent_tuning": True}
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    out, width = draw.size(gpu=65536, cpu=256), draw.size(gpu=8192, cpu=256)
    weight = draw.normal(out, width, dtype=draw.dtype, scale=width**-0.5)
    narrow = Int8Tensor.from_hp(weight, PerRow())  # as quantize_ does with Int8WeightOnlyConfig
    return draw.normal(1, width, dtype=draw.dtype), weight, narrow.qdata, narrow.scale


def in_bf16(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


def torchao_int8(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    """title: Store weights in eight bits with torchao
    pair: {group: framework, plain: in_bf16, reference: in_bf16}
    saves: HBM bandwidth of the weights
    idea: While one token at a time is decoded, a layer takes as long as reading its weights. torchao replaces
      a linear layer's weight by int8 with a scale per row. The compiler converts it on its way to the
      multiplication, so half the bytes of bf16 are read, without a hand-written kernel.
    cost: At best half the time, and compilation, which tries several ways to split the work. Rounding adds an
      error of about 0.8 % of a row's size.
    not_when: The layer is not compiled, since the converted weights are then written to memory and read
      again, slower than bf16. Nor where many rows are multiplied at once.
    shows: {dram__bytes_read.sum: two per weight → one per weight}
    tips: [inference.weight-int8, inference.fused-dequantisation]
    findings: {kernels-weight-bound-decode: 2, kernels-dequantised-weights: 2}
    needs: {packages: [torchao]}
    proof: {precision: bf16}"""
    quantised = Int8Tensor(narrow, scale, [1, narrow.shape[1]], x.dtype)
    return _compiled()(x, quantised)


@cache
def _compiled() -> Any:
    return torch.compile(F.linear, options=OPTIONS)


work = traffic(0, 0, 1)
