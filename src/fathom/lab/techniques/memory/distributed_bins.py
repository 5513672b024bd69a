"""
title: A histogram spread over the shared memory of a cluster
saves: atomic operations in L2
idea: >-
  32,768 bins take 128 KB, too much for a block beside others, so each key is an atomic addition in L2. Four
  blocks of a cluster hold a quarter of the bins each and count in one another's shared memory; only the
  sums of a cluster go to L2.
cost: >-
  Every count crosses to another multiprocessor three times in four. All clusters add all their bins at the
  end, so there are no more clusters than fit at once.
not_when: >-
  The bins fit into a block (private-histogram), keys are sorted or few, or there are fewer keys than some
  hundred for each bin and cluster.
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

THREADS, BINS, BLOCKS = 512, 1 << 15, 4
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.whole(0, BINS, draw.size(gpu=1 << 27, cpu=1000), dtype=torch.int32)


def _counted(kernel: str, keys: Tensor) -> Tensor:
    out = torch.zeros(BINS, dtype=torch.int32, device=keys.device)
    grid = 2 * kernels.multiprocessors() // BLOCKS * BLOCKS
    kernels.launch(kernel, grid, THREADS, out, keys, len(keys) // 4)
    return out


def plain(keys: Tensor) -> Tensor:
    return _counted("in_global", keys)


def tuned(keys: Tensor) -> Tensor:
    return _counted("over_cluster", keys)


def reference(keys: Tensor) -> Tensor:
    return torch.bincount(keys.long(), minlength=BINS)


def work(keys: Tensor) -> dict[str, float]:
    return {"bytes": keys.nbytes + 4 * BINS}
