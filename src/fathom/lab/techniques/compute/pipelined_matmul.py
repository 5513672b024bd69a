"""
title: A product in large tiles, loads ahead of the tensor cores
saves: tensor-core time lost to waiting, and L2 bandwidth
idea: >-
  Tiles of 128 by 256 use each element that was loaded twice to four times as often as tiles of 64 by 64,
  and let Triton issue the warpgroup product (wgmma) on Hopper. With three stages in shared memory the next
  tiles arrive while the present ones are multiplied. Neighbouring programs share rows, so that L2 serves
  them.
cost: >-
  Arithmetic intensity of a tile is M N / (M + N); shared memory is stages times (M + N) K times 2 bytes,
  here 147 KB, so that one program has a multiprocessor.
not_when: >-
  The result has fewer tiles than the chip has multiprocessors (split K then), or always: cuBLAS is ahead of
  either form, and users call that.
shows:
  - what: sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
    plain: a third or less
    tuned: above 70 %
findings: [numbers-tile-size, kernels-tensor-cores-idle]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n = draw.size(gpu=8192, cpu=192)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(n, n, dtype=dtype), draw.normal(n, n, dtype=dtype)


@triton.jit
def _matmul(
    out, left, right, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    number, columns = tl.program_id(0), tl.cdiv(n, N)
    first = number // (GROUP * columns) * GROUP  # programs go down GROUP rows of tiles, then to the right
    height = tl.minimum(tl.cdiv(m, M) - first, GROUP)
    inner = number % (GROUP * columns)
    rows = (first + inner % height) * M + tl.arange(0, M)
    cols, depth = inner // height * N + tl.arange(0, N), tl.arange(0, K)
    # Rows beyond the end wrap around, which costs less than a mask in every step; k is a multiple of K.
    at_left = left + (rows % m)[:, None].to(tl.int64) * k + depth[None, :]
    at_right = right + depth[:, None].to(tl.int64) * n + (cols % n)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        total = tl.dot(tl.load(at_left), tl.load(at_right), total)
        at_left += K
        at_right += K * n
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(out + rows[:, None].to(tl.int64) * n + cols[None, :], total, mask=inside)


def _product(left: Tensor, right: Tensor, tile: tuple[int, int, int], group: int, **how: int) -> Tensor:
    (m, k), n = left.shape, right.shape[1]
    out = left.new_empty(m, n)
    grid = (triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1]),)
    _matmul[grid](out, left, right, m, n, k, M=tile[0], N=tile[1], K=tile[2], GROUP=group, **how)
    return out


def plain(left: Tensor, right: Tensor) -> Tensor:
    return _product(left, right, (64, 64, 32), 1, num_warps=4, num_stages=1)


def tuned(left: Tensor, right: Tensor) -> Tensor:
    return _product(left, right, (128, 256, 64), 8, num_warps=8, num_stages=3)


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if left.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": 3 * left.nbytes, "unit": unit}
