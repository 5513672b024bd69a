"""Divide rows by their root mean square, in Warp.

    fathom lab run warp-tiles

by_thread gives each row to a thread, warp_tiles to a block.
"""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from torch import Tensor

from fathom.lab import normal, traffic

wp.config.quiet = True
wp.init()
WIDTH, THREADS = 2048, 256
EPSILON = 1e-6
inputs = normal(((65536, 6), WIDTH))
work = traffic(2)


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
    """Return torch's current device and stream, as options of a launch."""
    stream = wp.stream_from_torch(torch.cuda.current_stream()) if x.is_cuda else None
    return {"device": wp.device_from_torch(x.device), "stream": stream}


def by_thread(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    given = {"inputs": [wp.from_torch(x)], "outputs": [wp.from_torch(out)]}
    wp.launch(_by_thread, dim=len(x), **given, **_place(x))
    return out


def warp_tiles(x: Tensor) -> Tensor:
    """title: Load rows as tiles in a Warp kernel
    pair: {group: framework, plain: by_thread}
    saves: HBM bandwidth, and multiprocessors that wait for memory
    idea: A first kernel in Warp usually gives each thread a row. Neighbouring threads then read a row's
      length apart, and read it twice. With tiles, one block per row loads it once, coalesced, keeps it in
      registers and sums it as a whole.
    cost: The row's length is part of the type, so each length is compiled separately and must fit in a
      block's registers or shared memory.
    not_when: Rows are so short that a block has no work for its threads, or there are few of them.
    shows:
      sectors per request of the loads: one per lane, 32 → as the bytes need, 4 to 16
      dram__bytes_read.sum: more than the input, since rows leave the caches before the second pass → the
        input
    tips: [frameworks.tile-languages, memory.coalescing]
    findings: {kernels-uncoalesced: 3}
    needs: {packages: [warp]}"""
    out = torch.empty_like(x)
    given = {"inputs": [wp.from_torch(x)], "outputs": [wp.from_torch(out)]}
    wp.launch_tiled(_by_tile, dim=[len(x)], block_dim=THREADS, **given, **_place(x))
    return out


def reference(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + EPSILON)
