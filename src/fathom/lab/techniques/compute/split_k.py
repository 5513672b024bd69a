"""
title: A product with a long sum, split over the sum
saves: multiprocessors that idle
idea: >-
  A product with a small result has fewer tiles than the chip has multiprocessors, however long its sums
  are. Cutting the sum gives every multiprocessor a part; the parts are added up in a second step.
cost: >-
  Time falls by up to the number of parts, until the chip is full; the parts are written and read once in
  float32 (parts times M N times 8 bytes), with one launch more.
not_when: >-
  The tiles fill the chip already, or the sum is short: then the parts cost more than they bring.
shows:
  - what: launch__grid_size over multiprocessors
    plain: below one
    tuned: about one
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: low
    tuned: high
findings: [kernels-low-occupancy, numbers-tile-size]
needs: {packages: [triton]}
cache: warm
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

TILE = 64
PARTS = 16


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, length = draw.size(gpu=256, cpu=64), draw.size(gpu=65536, cpu=2048)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(n, length, dtype=dtype), draw.normal(length, n, dtype=dtype)


@triton.jit
def _partial(parts, left, right, n, k, share, SIZE: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    cols = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    part = tl.program_id(2)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(part * share, part * share + share, K):
        depth = start + tl.arange(0, K)
        a = tl.load(left + rows[:, None] * k + depth[None, :])
        b = tl.load(right + depth[:, None] * n + cols[None, :])
        total = tl.dot(a, b, total)
    place = part * n * n + rows[:, None] * n + cols[None, :]
    tl.store(parts + place, total)


def _parts(left: Tensor, right: Tensor, parts: int) -> Tensor:
    n, k = left.shape
    out = torch.empty(parts, n, n, dtype=torch.float32, device=left.device)
    grid = (n // TILE, n // TILE, parts)
    _partial[grid](out, left, right, n, k, k // parts, SIZE=TILE, K=64, num_warps=4, num_stages=4)
    return out


def plain(left: Tensor, right: Tensor) -> Tensor:
    return _parts(left, right, 1)[0]


def tuned(left: Tensor, right: Tensor) -> Tensor:
    return _parts(left, right, PARTS).sum(dim=0)


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if left.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": 2 * left.nbytes, "unit": unit}
