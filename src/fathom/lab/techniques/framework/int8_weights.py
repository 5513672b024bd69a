"""
title: Weights in eight bits while decoding
saves: HBM bandwidth of the weights
idea: >-
  With one row, a product reads every weight for two operations, so time is bytes. Weights rounded to int8,
  with a scale a row, are half the bytes of bf16; they are widened in registers on their way to the
  multiplication, which stays in float32.
cost: >-
  Half the time at best. Rounding makes an error of about 0.8 % of a row's size, below that of bf16 products
  within it; outliers in a row cost more (then scale by groups, or keep these in bf16). Conversions run at a
  fraction of other instructions' rate: made of the bits instead, they brought 82 % of memory's ceiling to
  86 % on an H200, and four rows of eight warps in place of two of four to 92 %.
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

ROWS = 4  # of a program
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    out, width = draw.size(gpu=163840, cpu=12), draw.size(gpu=8192, cpu=2048)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    weight = draw.normal(out, width, dtype=dtype, scale=width**-0.5)
    scale = weight.abs().amax(dim=1).float() / 127
    narrow = (weight / scale.unsqueeze(1)).round_().to(torch.int8)
    return draw.normal(1, width, dtype=dtype), weight, narrow, scale


def plain(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


@triton.jit
def _widened(weight, QUICK: tl.constexpr):
    # Each byte, its sign turned over, becomes the last of 2^23's mantissa: 2^23 + 128 more than it was.
    if QUICK:
        bits = tl.inline_asm_elementwise(
            """
            {
                .reg .b32 turned;
                xor.b32 turned, $4, 0x80808080;
                prmt.b32 $0, turned, 0x4B000000, 0x7440;
                prmt.b32 $1, turned, 0x4B000000, 0x7441;
                prmt.b32 $2, turned, 0x4B000000, 0x7442;
                prmt.b32 $3, turned, 0x4B000000, 0x7443;
            }""",
            "=r,=r,=r,=r,r",
            [weight],
            dtype=tl.float32,
            is_pure=True,
            pack=4,
        )
        wide = bits - 8388736.0
    else:
        wide = weight.to(tl.float32)
    return wide


@triton.jit
def _decoded(out, x, narrow, scale, ROWS: tl.constexpr, WIDTH: tl.constexpr, QUICK: tl.constexpr):
    rows, at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    weight = tl.load(narrow + rows[:, None] * WIDTH + at[None, :], eviction_policy="evict_first")
    given = tl.load(x + at, eviction_policy="evict_last").to(tl.float32)
    total = tl.sum(_widened(weight, QUICK) * given[None, :], axis=1)
    tl.store(out + rows, total * tl.load(scale + rows))


def tuned(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    rows, width = narrow.shape  # the width is a power of two
    out = x.new_empty(1, rows)
    given = (out, x, narrow, scale)
    _decoded[(rows // ROWS,)](*given, ROWS=ROWS, WIDTH=width, QUICK=x.is_cuda, num_warps=8)
    return out


def reference(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, weight)


def work(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> dict[str, float]:
    return {"bytes": narrow.nbytes}
