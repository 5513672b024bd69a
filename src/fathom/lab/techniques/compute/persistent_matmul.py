"""
title: Programs that stay and take tile after tile
saves: the start and the end of each tile, when tensor cores wait
idea: >-
  A grid of one program a tile starts and ends thousands of programs: the first loads of each wait for HBM or
  L2, and its result is written before the next begins. One program a multiprocessor walks over its tiles in
  one flat loop over all their steps, so that the loads of the next tile are under way while this one is
  multiplied, and its result leaves behind them.
cost: >-
  Shared memory for a tile of the result beside the stages, and a fixed assignment of tiles: one that runs
  late is not made up for.
not_when: >-
  Sums are long: then start and end are a small part. Other work shares the chip, and the scheduler of the
  hardware spreads programs better. Loops that stay nested: a staying program that begins each tile anew took
  1.14 times as long as one program a tile on an H200.
shows:
  - what: launch__grid_size
    plain: the number of tiles
    tuned: the number of multiprocessors
  - what: sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
    plain: lower
    tuned: higher
findings: [kernels-wave-quantisation]
needs: {capability: 9.0, packages: [triton], torch: "2.8"}
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fathom.lab import Draw

TILE = {"M": 128, "N": 256, "K": 64, "GROUP": 8}
HOW = {"num_warps": 8, "num_stages": 3}


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, length = draw.size(gpu=8192, cpu=512), draw.size(gpu=512, cpu=128)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(n, length, dtype=dtype), draw.normal(length, n, dtype=dtype)


@triton.jit
def _place(number, n, M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr):
    """A tile by its number: down GROUP rows of tiles, then to the right; no tile is cut."""
    columns = n // N
    first = number // (GROUP * columns) * GROUP
    height = tl.minimum(n // M - first, GROUP)
    inner = number % (GROUP * columns)
    return (first + inner % height) * M, inner // height * N


@triton.jit
def _once(out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    row, column = _place(tl.program_id(0), n, M, N, GROUP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        total = tl.dot(left.load([row, start]), right.load([start, column]), total)
    out.store([row, column], total.to(out.dtype))


@triton.jit
def _staying(out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    tiles = (n // M) * (n // N)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = _place(number, n, M, N, GROUP)
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, k, K):
            total = tl.dot(left.load([row, start]), right.load([start, column]), total)
        out.store([row, column], total.to(out.dtype))


def _product(kernel: Any, programs: int, left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out, shapes = left.new_empty(n, n), ("MN", "MK", "KN")
    described = [
        TensorDescriptor.from_tensor(tensor, [TILE[edge] for edge in shape])
        for tensor, shape in zip((out, left, right), shapes, strict=True)
    ]
    kernel[(programs,)](*described, n, k, **TILE, **HOW)
    return out


def _tiles(n: int) -> int:
    return (n // TILE["M"]) * (n // TILE["N"])


def plain(left: Tensor, right: Tensor) -> Tensor:
    return _product(_once, _tiles(len(left)), left, right)


def tuned(left: Tensor, right: Tensor) -> Tensor:
    places = torch.cuda.get_device_properties(left.device).multi_processor_count if left.is_cuda else 3
    return _product(_staying, min(places, _tiles(len(left))), left, right)


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if left.dtype == torch.bfloat16 else "vector.fp32"
    flops = 2.0 * left.numel() * right.shape[1]
    return {"flops": flops, "bytes": 2 * left.nbytes + left.element_size() * len(left) ** 2, "unit": unit}
