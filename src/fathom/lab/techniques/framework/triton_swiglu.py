"""
title: The gate of a SwiGLU in one kernel
saves: HBM bandwidth
idea: >-
  Halving the projection, the SiLU of one half and its product with the other are two kernels in eager mode,
  the first of which writes a tensor that only the second reads. One kernel reads both halves and writes the
  product.
cost: >-
  Three passes in place of five, and one launch in place of two.
not_when: >-
  The products on both sides dwarf it (large widths, many tokens), or a compiler sees the block anyway.
shows:
  - what: dram__bytes_read.sum + dram__bytes_write.sum
    plain: five times a half
    tuned: three times a half
findings: [kernels-unfused-elementwise]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

BLOCK = 1024


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(draw.size(gpu=12288, cpu=3), 2 * draw.size(gpu=11008, cpu=1100), dtype=dtype)


def _gated(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


def plain(x: Tensor) -> Tensor:
    return _gated(x)


@triton.jit
def _swiglu(to, source, columns, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = at < columns
    gate = tl.load(source + row * 2 * columns + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(source + row * 2 * columns + columns + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(to + row * columns + at, gate / (1.0 + tl.exp(-gate)) * value, mask=inside)


def tuned(x: Tensor) -> Tensor:
    rows, columns = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, columns)
    _swiglu[(rows, triton.cdiv(columns, BLOCK))](out, x, columns, SIZE=BLOCK)
    return out


def reference(x: Tensor) -> Tensor:
    return _gated(x)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 1.5 * x.nbytes}
