"""
title: Programs that stay and take tile after tile
saves: the tail of the last wave, and the start of each program
idea: >-
  A grid of one program a tile starts and ends thousands of programs, and the loads of the next tile begin
  only when the last one's results are written. One program a multiprocessor that walks over its tiles
  starts once, and the compiler can overlap the end of one tile with the beginning of the next.
cost: >-
  Registers that live across tiles, and a fixed assignment of tiles: one that runs late is not made up for.
not_when: >-
  Each program has much to do (long sums), or other work shares the chip: then the scheduler of the hardware
  spreads programs better.
shows:
  - what: launch__grid_size
    plain: the number of tiles
    tuned: the number of multiprocessors
findings: [kernels-wave-quantisation]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

M, N, K = 128, 128, 64


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, length = draw.size(gpu=8192, cpu=300), draw.size(gpu=512, cpu=128)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(n, length, dtype=dtype), draw.normal(length, n, dtype=dtype)


@triton.jit
def _tile(out, left, right, number, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    columns = tl.cdiv(n, N)
    rows = (number // columns * M + tl.arange(0, M)).to(tl.int64)
    cols = number % columns * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):  # k is a multiple of K
        depth = start + tl.arange(0, K)
        a = tl.load(left + rows[:, None] * k + depth[None, :], mask=rows[:, None] < n, other=0.0)
        b = tl.load(right + depth[:, None] * n + cols[None, :], mask=cols[None, :] < n, other=0.0)
        total = tl.dot(a, b, total)
    inside = (rows[:, None] < n) & (cols[None, :] < n)
    tl.store(out + rows[:, None] * n + cols[None, :], total, mask=inside)


@triton.jit
def _once(out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    _tile(out, left, right, tl.program_id(0), n, k, M, N, K)


@triton.jit
def _staying(out, left, right, n, k, tiles, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    for number in range(tl.program_id(0), tiles, tl.num_programs(0)):
        _tile(out, left, right, number, n, k, M, N, K)


def _tiles(n: int) -> int:
    return triton.cdiv(n, M) * triton.cdiv(n, N)


def plain(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out = left.new_empty(n, n)
    _once[(_tiles(n),)](out, left, right, n, k, M=M, N=N, K=K, num_warps=8, num_stages=3)
    return out


def tuned(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out, places = left.new_empty(n, n), 4
    if left.is_cuda:
        places = torch.cuda.get_device_properties(left.device).multi_processor_count
    grid = (min(places, _tiles(n)),)
    _staying[grid](out, left, right, n, k, _tiles(n), M=M, N=N, K=K, num_warps=8, num_stages=3)
    return out


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if left.dtype == torch.bfloat16 else "vector.fp32"
    flops = 2.0 * left.numel() * right.shape[1]
    return {"flops": flops, "bytes": 2 * left.nbytes + left.element_size() * len(left) ** 2, "unit": unit}
