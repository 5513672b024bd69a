"""
title: Tiles small enough for many blocks
saves: time in which a multiprocessor only loads, or only computes
idea: >-
  A block loads its tile, waits at a barrier, and computes. With 48 KB a block four of them fit into a
  multiprocessor, 512 threads of 2,048, and often all are in the same phase. Tiles of 4 KB let sixteen
  blocks in, and some load while others compute.
cost: >-
  The margins of a tile are read twice: 16 elements in 1,024, where they were 16 in 12,032; most of that
  comes from L2.
not_when: >-
  A tile's reuse grows with its size (products), or each thread has enough loads in flight by itself: then
  few blocks are nearly enough. Here each has up to eight of 16 bytes, and the large tile reached 88 % of
  the ceiling of an H200, the small one 95 %; with loads of 4 bytes, one after the other, they reached 21
  and 53 %.
shows:
  - what: sm__warps_active.avg.pct_of_peak_sustained_active
    plain: 25 %
    tuned: near 100 %
  - what: launch__occupancy_limit_shared_mem
    plain: four blocks
    tuned: no limit
findings: [kernels-low-occupancy]
reduction: 17
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, RADIUS = 128, 8
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=1 << 26, cpu=30_000))


def _smoothed(kernel: str, tile: int, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch(kernel, -(-len(x) // tile), THREADS, out, x, len(x))
    return out


def plain(x: Tensor) -> Tensor:
    return _smoothed("large_tiles", 12032, x)


def tuned(x: Tensor) -> Tensor:
    return _smoothed("small_tiles", 1024, x)


def reference(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool1d(x[None], 2 * RADIUS + 1, stride=1, padding=RADIUS)[0]


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
