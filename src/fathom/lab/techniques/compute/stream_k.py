"""
title: A product cut into equal shares of steps
saves: multiprocessors that idle in the last wave
idea: >-
  144 tiles on 132 multiprocessors take two waves, the second of which is nearly empty. Stream-K gives
  every program whole tiles as long as those fill a wave, and cuts the rest, all steps of all tiles that are
  left, into equal shares. A share begins and ends anywhere within a tile; parts of a tile are added up.
cost: >-
  Time falls by the empty part of the last wave. Tiles that are cut are added to the result atomically in
  float32, which has to be zero before.
not_when: >-
  There are many waves, or the tiles come out even. The order of additions is not fixed, so results differ
  in the last bits from run to run.
shows:
  - what: launch__waves_per_multiprocessor
    plain: a little above one
    tuned: one
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: about half
    tuned: most of the time
findings: [kernels-wave-quantisation]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

TILE, K = 128, 64
SMALL = 32  # the tile on a processor


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, length = draw.size(gpu=12 * TILE, cpu=3 * SMALL), draw.size(gpu=16384, cpu=512)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(n, length, dtype=dtype), draw.normal(length, n, dtype=dtype)


@triton.jit
def _sum(left, right, number, begin, end, n, k, TILE: tl.constexpr, K: tl.constexpr):
    """The steps from `begin` to `end` of one tile, and where it lies in the result."""
    rows = (number // (n // TILE) * TILE + tl.arange(0, TILE))[:, None]
    cols = (number % (n // TILE) * TILE + tl.arange(0, TILE))[None, :]
    depth = begin * K + tl.arange(0, K)
    at_left, at_right = left + rows * k + depth[None, :], right + depth[:, None] * n + cols
    total = tl.zeros((TILE, TILE), tl.float32)
    for _ in range(begin, end):
        total = tl.dot(tl.load(at_left), tl.load(at_right), total)
        at_left += K
        at_right += K * n
    return total, rows * n + cols


@triton.jit
def _a_tile_each(out, left, right, n, k, TILE: tl.constexpr, K: tl.constexpr):
    total, place = _sum(left, right, tl.program_id(0), 0, k // K, n, k, TILE, K)
    tl.store(out + place, total)


@triton.jit
def _equal_shares(out, left, right, n, k, whole, share, TILE: tl.constexpr, K: tl.constexpr):
    steps, tiles = k // K, (n // TILE) * (n // TILE)
    for number in range(tl.program_id(0), whole, tl.num_programs(0)):
        total, place = _sum(left, right, number, 0, steps, n, k, TILE, K)
        tl.store(out + place, total)
    at = whole * steps + tl.program_id(0) * share
    end = tl.minimum(at + share, tiles * steps)
    while at < end:
        begin = at % steps
        stop = tl.minimum(begin + end - at, steps)
        total, place = _sum(left, right, at // steps, begin, stop, n, k, TILE, K)
        tl.atomic_add(out + place, total, sem="relaxed")
        at += stop - begin


def _tile(x: Tensor) -> int:
    return TILE if x.is_cuda else SMALL


def plain(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out, tile = left.new_empty(n, n, dtype=torch.float32), _tile(left)
    grid = ((n // tile) ** 2,)
    _a_tile_each[grid](out, left, right, n, k, TILE=tile, K=K, num_warps=8, num_stages=4)
    return out


def tuned(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out, tile, places = left.new_zeros(n, n, dtype=torch.float32), _tile(left), 4
    if left.is_cuda:
        places = torch.cuda.get_device_properties(left.device).multi_processor_count
    tiles = (n // tile) ** 2
    whole = tiles // places * places
    share = triton.cdiv((tiles - whole) * (k // K), places)
    _equal_shares[(places,)](out, left, right, n, k, whole, share, TILE=tile, K=K, num_warps=8, num_stages=4)
    return out


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if left.dtype == torch.bfloat16 else "vector.fp32"
    size = 2 * left.nbytes + 4 * len(left) ** 2
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": size, "unit": unit}
