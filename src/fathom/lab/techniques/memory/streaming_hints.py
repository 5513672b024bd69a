"""
title: Streams that leave the caches alone
saves: hits in L1 of what is used again
idea: >-
  A stream that is read once takes lines in L1 like everything else, and pushes out what is read again and
  again: here a row of factors and one of shifts, 160 KB, once a row of 80 KB. Loads that allocate no line
  leave them where they are; else each row reads them from L2, twice its own bytes.
cost: >-
  Nothing but the hint. A hint on data that is used again after all costs its reuse. Stores that are evicted
  first as well made it slower on an H200: 88 % of the ceiling in place of 90 %.
not_when: >-
  What is used again fits into L1 beside what passes until then, or is far larger: then it misses either
  way. A table that is looked up at random is one of these: each line is used again within a few kilobytes
  of the stream, and both forms took the same time on an H200.
shows:
  - what: l1tex__t_sector_hit_rate.pct
    plain: lower
    tuned: higher
no_gain: >-
  H200: the plain form reaches 92 % of memory's ceiling and so does this one: rows that L1 lost come from L2
  beside a stream that HBM bounds, so the hint saves what nobody waits for.
findings: [kernels-l2-thrash]
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, BLOCKS = 512, 2  # blocks of a multiprocessor
COLUMNS = 20480
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    x = draw.normal(draw.size(gpu=132 * 72, cpu=5), COLUMNS)
    return x, draw.normal(COLUMNS), draw.normal(COLUMNS)


def plain(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    out, grid = torch.empty_like(x), BLOCKS * kernels.multiprocessors()
    kernels.launch("as_usual", grid, THREADS, out, x, scale, shift, len(x))
    return out


def tuned(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch("streaming", 2 * len(x), THREADS, out, x, scale, shift)
    return out


def reference(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return x * scale + shift


def work(x: Tensor, scale: Tensor, shift: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes + scale.nbytes + shift.nbytes}
