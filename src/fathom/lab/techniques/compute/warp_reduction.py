"""
title: Sums by shuffles
saves: barriers, and traffic of shared memory
idea: >-
  A tree in shared memory halves the threads at work at each of its levels, with a barrier between two.
  Lanes of a warp exchange registers directly: five shuffles add up 32 values, and one barrier joins the
  warps.
cost: >-
  Eight barriers become one, and 2 n accesses to shared memory become n / 32.
not_when: >-
  The reduction is a small part of the kernel, or a library does it (CUB, torch.sum).
shows:
  - what: smsp__average_warps_issue_stalled_barrier_per_issue_active
    plain: the largest stall
    tuned: small
no_gain: >-
  H200: as fast as the tree. Both read at 93 % of memory's ceiling, and the tree's barriers hide behind that.
reduction: 2048
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
COLUMNS = 2048
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.uniform(draw.size(gpu=1 << 17, cpu=3), COLUMNS)


def _sums(kernel: str, x: Tensor) -> Tensor:
    out = x.new_empty(len(x))
    kernels.launch(kernel, len(x), THREADS, out, x, COLUMNS)
    return out


def plain(x: Tensor) -> Tensor:
    return _sums("by_tree", x)


def tuned(x: Tensor) -> Tensor:
    return _sums("by_shuffles", x)


def reference(x: Tensor) -> Tensor:
    return torch.sum(x, dim=1)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": x.nbytes + 4 * len(x)}
