"""
title: A product whose tiles come by descriptor
saves: address arithmetic and registers beside the tensor cores
idea: >-
  With pointers, every thread computes the addresses of its part of each tile, holds them in registers and
  issues the copies. With a descriptor one thread names a tile, and the tensor memory accelerator fetches
  it, bounds and swizzle included, so that warps do little else than issue products.
cost: >-
  A descriptor of 128 bytes an operand, made on the host at each call; the registers and issue slots of the
  copies are saved. Tiles of 128 by 256 by 64 take 48 KB a stage.
not_when: >-
  Rows are no multiple of 16 bytes, elements are gathered, or the product is small. Users call cuBLAS,
  which is ahead of this too: it specialises warps and shares tiles in clusters.
shows:
  - what: smsp__inst_executed.sum
    plain: copies and addresses beside the products
    tuned: a fraction of that
  - what: sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
    plain: lower
    tuned: above 80 %
no_gain: >-
  H200: by pointers this shape runs at 99 % of what cuBLAS reaches, so nothing is left to gain; by
  descriptor it took 1.04 times as long.
findings: [kernels-tensor-cores-idle]
needs: {capability: 9.0, packages: [triton], torch: "2.8"}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fathom.lab import Draw

M, N, K, GROUP = 128, 256, 64, 8
WARPS, STAGES = 8, 4


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, length = draw.size(gpu=8192, cpu=256), draw.size(gpu=8192, cpu=128)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(n, length, dtype=dtype), draw.normal(length, n, dtype=dtype)


@triton.jit
def _place(n, M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr):
    """The tile of this program: down GROUP rows of tiles, then to the right; no tile is cut."""
    number, columns = tl.program_id(0), n // N
    first = number // (GROUP * columns) * GROUP
    height = tl.minimum(n // M - first, GROUP)
    inner = number % (GROUP * columns)
    return (first + inner % height) * M, inner // height * N


@triton.jit
def _by_pointers(
    out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    row, column = _place(n, M, N, GROUP)
    rows, cols, depth = row + tl.arange(0, M), column + tl.arange(0, N), tl.arange(0, K)
    at_left = left + rows[:, None].to(tl.int64) * k + depth[None, :]
    at_right = right + depth[:, None].to(tl.int64) * n + cols[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        total = tl.dot(tl.load(at_left), tl.load(at_right), total)
        at_left += K
        at_right += K * n
    tl.store(out + rows[:, None].to(tl.int64) * n + cols[None, :], total)


@triton.jit
def _by_descriptor(
    out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    row, column = _place(n, M, N, GROUP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        total = tl.dot(left.load([row, start]), right.load([start, column]), total)
    out.store([row, column], total.to(out.dtype))


def _grid(n: int) -> tuple[int]:
    return ((n // M) * (n // N),)


def plain(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out = left.new_empty(n, n)
    _by_pointers[_grid(n)](
        out, left, right, n, k, M=M, N=N, K=K, GROUP=GROUP, num_warps=WARPS, num_stages=STAGES
    )
    return out


def tuned(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out = left.new_empty(n, n)
    tiles = zip((out, left, right), ((M, N), (M, K), (K, N)), strict=True)
    described = [TensorDescriptor.from_tensor(tensor, list(shape)) for tensor, shape in tiles]
    _by_descriptor[_grid(n)](*described, n, k, M=M, N=N, K=K, GROUP=GROUP, num_warps=WARPS, num_stages=STAGES)
    return out


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if left.dtype == torch.bfloat16 else "vector.fp32"
    size = 2 * left.nbytes + left.element_size() * len(left) ** 2
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": size, "unit": unit}
