"""
title: Wide loads and stores
saves: issue slots and requests in flight
idea: >-
  A load of one byte a lane brings 32 bytes with an instruction that could bring 512. Bandwidth is bytes in
  flight over latency, and a multiprocessor holds so many requests and no more: wider ones keep more bytes
  in flight.
cost: >-
  Requests fall by the width; sectors stay. It asks for alignment, and for a tail where sizes are no
  multiples. More is not better: two words a thread were faster than four or eight on an H200, and words of
  16 bytes, which then have to change hands before the stores, slower.
not_when: >-
  The kernel is at the ceiling already: coalesced loads of 4 bytes with enough warps in flight usually are,
  so fp32 streams gain little on this chip. Registers that hold the vectors may cost occupancy.
shows:
  - what: smsp__inst_executed_op_global_ld.sum
    plain: one a warp and 32 weights
    tuned: a quarter of that
  - what: dram__throughput.avg.pct_of_peak_sustained_elapsed
    plain: below the tuned form's
    tuned: near the ceiling hbm
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
WIDE, WORDS = 512, 2  # threads of a block of the wide form, and loads of each
SCALE = 0.03125
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.whole(0, 256, draw.size(gpu=1 << 29, cpu=4096), dtype=torch.uint8)


def plain(x: Tensor) -> Tensor:
    out = torch.empty_like(x, dtype=torch.float32)
    kernels.launch("one_each", -(-x.numel() // THREADS), THREADS, out, x, SCALE, x.numel())
    return out


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x, dtype=torch.float32)
    kernels.launch("four_each", -(-x.numel() // (4 * WORDS * WIDE)), WIDE, out, x, SCALE, x.numel())
    return out


def reference(x: Tensor) -> Tensor:
    return (x.double() - 128) * SCALE


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 5 * x.numel()}
