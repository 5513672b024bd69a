"""
title: Neighbouring lanes read neighbouring addresses
saves: HBM and L1 bandwidth, in sectors of 32 bytes
idea: >-
  A request of a warp is served in sectors of 32 bytes. Lanes that read one float each from 32 different
  rows touch 32 sectors for 128 bytes; lanes that read along a row touch 4. So a warp takes a row and adds
  up at the end.
cost: >-
  Time is sectors times 32 bytes over bandwidth. The plain form asks for eight times the sectors, unless L1
  still holds the rest of each when the next column is read; the tuned form adds five shuffles a row.
not_when: >-
  Rows of a few elements (a warp would be mostly idle; let several lanes share a row), or where the rows
  that a block works on fit into L1 and stay there: then only L1's own bandwidth is lost.
shows:
  - what: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum over l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum
    plain: 32 sectors a request
    tuned: 4 sectors a request
findings: [kernels-uncoalesced]
reduction: 256
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
COLUMNS = 256
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.uniform(draw.size(gpu=1 << 20, cpu=70), COLUMNS)


def plain(x: Tensor) -> Tensor:
    out = x.new_empty(len(x))
    kernels.launch("by_thread", -(-len(x) // THREADS), THREADS, out, x, len(x), COLUMNS)
    return out


def tuned(x: Tensor) -> Tensor:
    out = x.new_empty(len(x))
    kernels.launch("by_warp", -(-len(x) * 32 // THREADS), THREADS, out, x, len(x), COLUMNS)
    return out


def reference(x: Tensor) -> Tensor:
    return torch.sum(x, dim=1)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 4 * (x.numel() + len(x))}
