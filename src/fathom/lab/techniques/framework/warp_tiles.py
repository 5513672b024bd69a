"""
title: Rows as tiles in a Warp kernel
saves: HBM bandwidth, and multiprocessors that wait for memory
idea: >-
  The first kernel that one writes in Warp gives each thread a row: neighbouring threads read a row's length
  apart, and go over it twice. With tiles a block takes a row: it is loaded once, side by side, stays in
  registers, and is summed by the block as a whole.
cost: >-
  The row's length is part of the type, so each length is compiled by itself, and has to fit into a block's
  registers or shared memory.
not_when: >-
  Rows are so short that a block has no work for its threads, or there are few of them.
shows:
  - what: sectors per request of the loads
    plain: a sector for each lane, 32
    tuned: those that the bytes need, 4 to 16
  - what: dram__bytes_read.sum
    plain: more than the input, whatever leaves the caches before the second pass
    tuned: the input
findings: [kernels-uncoalesced]
needs: {packages: [warp]}
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from fathom.lab import Draw

wp.config.quiet = True
wp.init()
WIDTH, THREADS = 2048, 256
EPSILON = 1e-6


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=65536, cpu=6), WIDTH)


@wp.kernel
def _by_thread(x: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):  # type: ignore[valid-type]
    row = wp.tid()
    total = wp.float32(0.0)  # a literal would be a constant
    for column in range(WIDTH):
        total += x[row, column] * x[row, column]
    scale = 1.0 / wp.sqrt(total / float(WIDTH) + EPSILON)
    for column in range(WIDTH):
        out[row, column] = x[row, column] * scale


@wp.kernel
def _by_tile(x: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):  # type: ignore[valid-type]
    row = wp.tid()
    values = wp.tile_load(x, shape=(1, WIDTH), offset=(row, 0))
    total = wp.tile_sum(wp.tile_map(wp.mul, values, values))
    scale = 1.0 / wp.sqrt(wp.tile_extract(total, 0) / float(WIDTH) + EPSILON)
    wp.tile_store(out, values * scale, offset=(row, 0))


def _place(x: Tensor) -> dict[str, Any]:
    """Where torch works at the moment."""
    stream = wp.stream_from_torch(torch.cuda.current_stream()) if x.is_cuda else None
    return {"device": wp.device_from_torch(x.device), "stream": stream}


def plain(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    given = {"inputs": [wp.from_torch(x)], "outputs": [wp.from_torch(out)]}
    wp.launch(_by_thread, dim=len(x), **given, **_place(x))
    return out


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    given = {"inputs": [wp.from_torch(x)], "outputs": [wp.from_torch(out)]}
    wp.launch_tiled(_by_tile, dim=[len(x)], block_dim=THREADS, **given, **_place(x))
    return out


def reference(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + EPSILON)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
