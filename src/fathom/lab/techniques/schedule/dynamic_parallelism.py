"""
title: Kernels that launch kernels
saves: multiprocessors that idle while one warp walks a long row
idea: >-
  A warp a row is right for the rows of a ragged matrix that have a few thousand elements, and wrong for the
  few that have millions: those are still walked when everything else is done. The warp that meets such a
  row launches a kernel of many blocks for it, without the host, and goes on with its own work.
cost: >-
  A launch from the device takes some microseconds, and memory for those that wait. The code is relocatable
  and linked with the device runtime; blocks add their parts up atomically, in no fixed order: with an
  addition a warp, not a block, 84 % of memory's ceiling were reached on an H200, not 88. It pays by the
  launch, and by what is left to do when the last one starts: 32 children for rows of 16 MB among short ones
  of 8 KB reached 88 %, for rows of 64 MB among twice as many 91, where a kernel that only reads as much
  reaches 94 and 95.
not_when: >-
  Rows are alike, or the host knows which are long: a second kernel for a list of them, or tasks of equal
  length cut beforehand, does the same with less. So many children that launching is the bottleneck.
shows:
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: a few percent for most of the time
    tuned: high
  - what: dram__throughput.avg.pct_of_peak_sustained_elapsed
    plain: low
    tuned: near the ceiling hbm
needs: {capability: 9.0, packages: [cuda.bindings]}
reduction: 16777216
"""
# Only on a GPU: the stand-in's kernels launch none.

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
LENGTH, LONG = 2048, 1 << 24  # of a row, of one row in 8,192
kernels = Source(__file__, device_runtime=True)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, many = draw.size(gpu=1 << 18, cpu=8), draw.size(gpu=1 << 13, cpu=8)
    lengths = torch.full((rows,), LENGTH, device=draw.device)
    lengths[::many] = LONG
    lengths = lengths[draw.uniform(rows).argsort()]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    return draw.uniform(int(starts[-1])), starts


def _sums(kernel: str, out: Tensor, values: Tensor, starts: Tensor) -> Tensor:
    kernels.launch(kernel, -(-len(out) * 32 // THREADS), THREADS, out, values, starts, len(out))
    return out


def plain(values: Tensor, starts: Tensor) -> Tensor:
    return _sums("a_warp_a_row", values.new_empty(len(starts) - 1), values, starts)


def tuned(values: Tensor, starts: Tensor) -> Tensor:
    return _sums("with_children", values.new_zeros(len(starts) - 1), values, starts)


def reference(values: Tensor, starts: Tensor) -> Tensor:
    running = torch.nn.functional.pad(values.cumsum(0), (1, 0))
    return running[starts.long()].diff()


def work(values: Tensor, starts: Tensor) -> dict[str, float]:
    return {"bytes": values.nbytes + starts.nbytes + 4 * len(starts)}
