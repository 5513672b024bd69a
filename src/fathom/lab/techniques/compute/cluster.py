"""
title: A row spread over a cluster of blocks
saves: HBM bandwidth, by one read of three passes
idea: >-
  A row of 256 KB fits neither into a multiprocessor's shared memory nor into its registers, so it is read
  once for its norm and once more to be scaled. Eight blocks of a cluster hold it together, read one
  another's sums through distributed shared memory, and scale what they hold.
cost: >-
  Two passes in place of three. Two barriers over the cluster, whose blocks must find room at the same time.
not_when: >-
  Rows fit into one block, or the second read hits L2 (few rows at a time): then the plain form loses
  little.
shows:
  - what: dram__bytes_read.sum
    plain: up to twice the tensor
    tuned: once the tensor
needs: {capability: 9.0}
"""
# Only on a GPU: the stand-in has no clusters.

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
COLUMNS = 65536
BLOCKS = 8  # of a cluster
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=1 << 11, cpu=2), COLUMNS)


def plain(x: Tensor) -> Tensor:
    sums, out = x.new_empty(len(x) * BLOCKS), torch.empty_like(x)
    kernels.launch("part_sums", len(x) * BLOCKS, THREADS, sums, x)
    kernels.launch("scaled", len(x) * BLOCKS, THREADS, out, x, sums)
    return out


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch("in_cluster", len(x) * BLOCKS, THREADS, out, x)
    return out


def reference(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True))


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
