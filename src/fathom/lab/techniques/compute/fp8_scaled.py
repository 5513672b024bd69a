"""
title: A product in fp8 with a scale a row
saves: time of the tensor cores, and bytes of the operands
idea: >-
  Hopper multiplies e4m3 at twice the rate of bf16. Its three bits of mantissa and range of 448 ask for
  scales: one for each row of the left operand and each column of the right puts the largest value at the
  end of the range.
cost: >-
  Weights are cast once, before. Casting activations reads them once, in one kernel that finds the largest
  values too; done by the kernel that makes them, it is free. A relative error of about 3e-2 an operand,
  which averages out over the sum.
not_when: >-
  The product is small or bound by bandwidth of its result, or the accuracy does not allow it. Casts by eager
  operations: both operands so took three times as long as the product in bf16 on an H200.
shows:
  - what: kernel families of the product
    plain: bf16
    tuned: e4m3, after one that casts
needs: {capability: 9.0, packages: [triton], torch: "2.5"}
precision: fp8
"""
# Only on a GPU: scales a row are not there on a processor.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

LARGEST = 448.0  # of e4m3
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    n = draw.size(gpu=8192, cpu=64)
    x, weight = draw.normal(n, n, dtype=torch.bfloat16), draw.normal(n, n, dtype=torch.bfloat16)
    scale = weight.abs().amax(dim=1).float() / LARGEST
    narrow = (weight.float() / scale.unsqueeze(1)).to(torch.float8_e4m3fn)
    return x, weight, narrow.view(torch.uint8), scale


def plain(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return x @ weight.t()


@triton.jit
def _cast(narrow, scales, x, columns, LARGEST: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / LARGEST
    tl.store(narrow + row * columns + at, (values / scale).to(tl.float8e4nv), mask=at < columns)
    tl.store(scales + row, scale)


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = x.shape
    narrow, scales = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(rows, 1, dtype=torch.float32)
    width = triton.next_power_of_2(columns)
    _cast[(rows,)](narrow, scales, x, columns, LARGEST=LARGEST, WIDTH=width, num_warps=8)
    return narrow, scales


def tuned(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    mine, scales = _quantised(x)
    kept = narrow.view(torch.float8_e4m3fn).t()
    how = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return torch._scaled_mm(mine, kept, scale_a=scales, scale_b=scale.unsqueeze(0), **how)


def reference(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return x @ weight.t()


def work(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> dict[str, float | str]:
    moved = 2 * x.nbytes + narrow.nbytes
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": moved, "unit": "matmul.fp8"}
