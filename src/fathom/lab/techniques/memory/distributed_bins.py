"""
title: A histogram spread over the shared memory of a cluster
saves: atomic operations in L2
idea: >-
  65,536 bins take 256 KB, more than a block may have, so each key is an atomic addition in L2. Two blocks
  of a cluster hold half of the bins each and count in one another's shared memory; only the sums of a
  cluster go to L2.
cost: >-
  Every other count crosses to another multiprocessor. All clusters add all their bins at the end, so there
  are no more clusters than fit at once.
not_when: >-
  The bins fit into the 227 KB that one block may have (private-histogram: nothing crosses then), or need
  clusters of four and more: three counts of four cross then, and were no faster than L2 on an H200. Keys
  are sorted or few, or there are fewer keys than some hundred for each bin and cluster.
shows:
  - what: lts__t_requests_op_red.sum
    plain: one a warp and distinct sector of keys
    tuned: the bins, once a cluster
findings: [kernels-atomics]
needs: {capability: 9.0}
"""
# Only on a GPU: the stand-in has no clusters.

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, BINS, BLOCKS = 1024, 1 << 16, 2
HALF = 4 * BINS // BLOCKS  # bytes of a block
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.whole(0, BINS, draw.size(gpu=1 << 28, cpu=1000), dtype=torch.int32)


def plain(keys: Tensor) -> Tensor:
    out = torch.zeros(BINS, dtype=torch.int32, device=keys.device)
    kernels.launch("in_global", 2 * kernels.multiprocessors(), THREADS, out, keys, len(keys) // 4)
    return out


def tuned(keys: Tensor) -> Tensor:
    out = torch.zeros(BINS, dtype=torch.int32, device=keys.device)
    grid = kernels.multiprocessors() // BLOCKS * BLOCKS
    kernels.launch("over_cluster", grid, THREADS, out, keys, len(keys) // 4, shared=HALF)
    return out


def reference(keys: Tensor) -> Tensor:
    return torch.bincount(keys.long(), minlength=BINS)


def work(keys: Tensor) -> dict[str, float]:
    return {"bytes": keys.nbytes + 4 * BINS}
