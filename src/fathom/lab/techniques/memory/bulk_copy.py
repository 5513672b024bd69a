"""
title: Rows fetched by the tensor memory accelerator
saves: instructions and registers of loads, and the wait for them
idea: >-
  One thread asks the accelerator for a whole row, which arrives in shared memory and counts itself in at a
  barrier; the next five rows are on their way while this one is scaled and stored.
cost: >-
  Shared memory for six rows a block, and blocks that stay: each draws its next row from a counter, for
  those nearer to memory get through more of them. With an equal share of rows each, stored by the
  accelerator too, they reached 89 % of the ceiling on an H200; so 94 %.
not_when: >-
  Enough blocks keep HBM busy with plain loads: then both are at the ceiling, and this saves instructions
  alone. Rows must be aligned to 16 bytes and be a multiple of that long.
shows:
  - what: l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum
    plain: none
    tuned: every byte that is read
  - what: smsp__inst_executed_op_global_ld.sum
    plain: one a warp and 32 floats
    tuned: none
no_gain: >-
  H200: plain loads of enough blocks reach 94.5 % of memory's ceiling and these 94.2 %; what falls is
  instructions and registers.
needs: {capability: 9.0}
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
COLUMNS = 2048
BLOCKS = 4  # of a multiprocessor: so many fit into its shared memory
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=1 << 16, cpu=50), COLUMNS)


def plain(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch("by_threads", len(x), THREADS, out, x, len(x))
    return out


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    following = torch.zeros(1, dtype=torch.int32, device=x.device)
    grid = min(len(x), BLOCKS * kernels.multiprocessors())
    kernels.launch("by_accelerator", grid, THREADS, out, x, len(x), following)
    return out


def reference(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True))


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
