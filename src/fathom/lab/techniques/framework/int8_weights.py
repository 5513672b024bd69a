"""
title: Weights in eight bits while decoding
saves: HBM bandwidth of the weights
idea: >-
  With one row, a product reads every weight for two operations, so time is bytes. Weights rounded to int8,
  with a scale a row, are half the bytes of bf16; they are widened in registers on their way to the
  multiplication, which stays in float32.
cost: >-
  Half the time at best. Rounding makes an error of about 0.8 % of a row's size, below that of bf16 products
  within it; outliers in a row cost more (then scale by groups, or keep these in bf16).
not_when: >-
  Many rows are multiplied at once (tensor cores decide, and widening costs), or the widened weights are
  written to memory before the product: then it is slower than bf16.
shows:
  - what: dram__bytes_read.sum
    plain: two a weight
    tuned: one a weight
findings: [kernels-weight-bound-decode]
needs: {packages: [triton]}
precision: bf16
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

ROWS, PART = 4, 1024
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    out, width = draw.size(gpu=65536, cpu=12), draw.size(gpu=8192, cpu=2048)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    weight = draw.normal(out, width, dtype=dtype, scale=width**-0.5)
    scale = weight.abs().amax(dim=1).float() / 127
    narrow = (weight.float() / scale.unsqueeze(1)).round().to(torch.int8)
    return draw.normal(1, width, dtype=dtype), weight, narrow, scale


def plain(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


@triton.jit
def _decoded(out, x, narrow, scale, width, ROWS: tl.constexpr, PART: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, PART), tl.float32)
    for start in range(0, width, PART):  # both are multiples of their tiles
        at = start + tl.arange(0, PART)
        given = tl.load(x + at).to(tl.float32)
        weight = tl.load(narrow + rows[:, None] * width + at[None, :]).to(tl.float32)
        total += weight * given[None, :]
    tl.store(out + rows, tl.sum(total, axis=1) * tl.load(scale + rows))


def tuned(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    rows, width = narrow.shape
    out = x.new_empty(1, rows)
    _decoded[(rows // ROWS,)](out, x, narrow, scale, width, ROWS=ROWS, PART=PART, num_warps=4)
    return out


def reference(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


def work(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> dict[str, float]:
    return {"bytes": narrow.nbytes}
