"""
title: Streams that leave the caches alone
saves: hits in L1 of what is used again
idea: >-
  A stream that is read once takes lines in L1 like everything else, and pushes out a table that is read
  again and again. Loads that allocate no line, and stores that are evicted first, leave the table where it
  is.
cost: >-
  Nothing but the hint. A hint on data that is used again after all costs its reuse.
not_when: >-
  The table is small next to L1 (recent use keeps it there anyway), or far larger: then it misses either
  way.
shows:
  - what: l1tex__t_sector_hit_rate.pct
    plain: lower
    tuned: higher
findings: [kernels-l2-thrash]
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
TABLE = 1 << 15  # floats: half of L1
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    keys = draw.whole(0, TABLE, draw.size(gpu=1 << 27, cpu=2000))
    return keys.float(), draw.normal(TABLE)


def _looked_up(kernel: str, keys: Tensor, table: Tensor) -> Tensor:
    out = torch.empty_like(keys)
    kernels.launch(kernel, -(-len(keys) // 4 // THREADS), THREADS, out, keys, table, len(keys))
    return out


def plain(keys: Tensor, table: Tensor) -> Tensor:
    return _looked_up("as_usual", keys, table)


def tuned(keys: Tensor, table: Tensor) -> Tensor:
    return _looked_up("streaming", keys, table)


def reference(keys: Tensor, table: Tensor) -> Tensor:
    return table[keys.long()]


def work(keys: Tensor, table: Tensor) -> dict[str, float]:
    return {"bytes": 2 * keys.nbytes + table.nbytes}
