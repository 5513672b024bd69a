"""
title: Tiles in shared memory
saves: traffic of L1 and L2
idea: >-
  Every element of a product's operands is used by n results. Threads that read it each for themselves ask
  the caches n times; a block that loads a tile into shared memory asks once for all its threads.
cost: >-
  Loads fall by the edge of the tile, 32 here. Two barriers a tile, and 8 KB of shared memory a block.
not_when: >-
  Each element is used once or twice, or the caches already serve the reuse at the rate that arithmetic
  needs. Shared memory has a bandwidth of its own, which is the next bound: see register-tiling.
shows:
  - what: l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum
    plain: two for each multiplication of a warp
    tuned: a thirty-second of that
  - what: l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
    plain: none
    tuned: about two a multiplication of a warp
"""

from __future__ import annotations

from torch import Tensor

from fathom.lab import Draw, Source

kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n = draw.size(gpu=2048, cpu=128)
    return draw.normal(n, n), draw.normal(n, n)


def plain(left: Tensor, right: Tensor) -> Tensor:
    n, out = len(left), left.new_empty(left.shape)
    kernels.launch("straight", (n // 32, n // 32), (32, 32), out, left, right, n)
    return out


def tuned(left: Tensor, right: Tensor) -> Tensor:
    n, out = len(left), left.new_empty(left.shape)
    kernels.launch("tiled", (n // 32, n // 32), (32, 32), out, left, right, n)
    return out


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(left) ** 3, "bytes": 3 * left.nbytes, "unit": "vector.fp32"}
