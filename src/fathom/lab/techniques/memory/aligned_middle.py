"""
title: Wide loads from rows that start anywhere
saves: issue slots and requests in flight
idea: >-
  Rows of 4095 bytes start at every alignment, so a load of 16 bytes is only allowed somewhere within them.
  The few bytes before the first multiple of 16 and after the last one are read singly, everything between
  them in words of 16 bytes.
cost: >-
  A sixteenth of the requests, against two short loads a row that most lanes sit out.
not_when: >-
  The layout is one's own: a pitch that is a multiple of 16 bytes (torch aligns every tensor to 512, not its
  rows) needs no head and tail. Rows of a few dozen bytes are nearly all head and tail.
shows:
  - what: smsp__inst_executed_op_global_ld.sum
    plain: one a warp and 32 bytes
    tuned: one a warp and 512 bytes, and two a row
  - what: dram__throughput.avg.pct_of_peak_sustained_elapsed
    plain: far below the tuned form's
    tuned: near the ceiling hbm
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
COLUMNS = 4095
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.whole(0, 256, draw.size(gpu=1 << 19, cpu=17), COLUMNS, dtype=torch.uint8)


def _sums(kernel: str, x: Tensor) -> Tensor:
    out = x.new_empty(len(x), dtype=torch.int32)
    kernels.launch(kernel, -(-len(x) * 32 // THREADS), THREADS, out, x, len(x), COLUMNS)
    return out


def plain(x: Tensor) -> Tensor:
    return _sums("byte_by_byte", x)


def tuned(x: Tensor) -> Tensor:
    return _sums("aligned_middle", x)


def reference(x: Tensor) -> Tensor:
    parts = x.split(1 << 16)  # torch makes whole numbers of eight bytes of them all before it adds them up
    return torch.cat([torch.sum(part, dim=1, dtype=torch.int64) for part in parts])


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": x.numel() + 4 * len(x)}
