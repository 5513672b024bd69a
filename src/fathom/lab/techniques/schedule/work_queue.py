"""
title: Blocks that draw their next task
saves: multiprocessors that idle while others have long tasks
idea: >-
  Blocks that stay, because each holds a table in shared memory, have to share out tasks among themselves.
  Taking every 1,056th gives each the same number, not the same work, where sequences differ in length. A
  counter in global memory, from which a block draws when it is done, gives the next task to whoever is
  free.
cost: >-
  An atomic addition and a barrier a task, which wait for nobody where the next task is drawn while the
  present one is added up, and a counter that is zero at the start. The end is as uneven as the last tasks:
  the longest first makes that small.
not_when: >-
  Tasks are alike, or blocks have nothing to keep: then a grid of one block a task is the same queue, in
  hardware. Codes of two bytes each: lanes that look up at random wait for one another's banks of shared
  memory then, not for HBM (at most 69 % of its ceiling on an H200, whoever has which task).
shows:
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: falls off towards the end
    tuned: high until the end
findings: [kernels-wave-quantisation]
reduction: 65536
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, TABLE, PIECE = 256, 4096, 4
SPREAD = 0.75  # of the logarithms of the lengths
kernels = Source(__file__)


def _lengths(tasks: int, mean: int) -> Tensor:
    """Quantiles of a log-normal distribution: the same work for every seed."""
    at = (torch.arange(tasks, dtype=torch.float64) + 0.5) / tasks
    lengths = torch.exp(SPREAD * 2**0.5 * torch.erfinv(2 * at - 1))
    return (lengths * mean / lengths.mean() / PIECE).long() * PIECE


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tasks = draw.size(gpu=1 << 16, cpu=40)
    lengths = _lengths(tasks, draw.size(gpu=1 << 13, cpu=200)).to(draw.device)
    lengths = lengths[draw.uniform(tasks).argsort()]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    codes = draw.whole(0, TABLE, int(starts[-1]), dtype=torch.int32)
    return codes, starts, draw.uniform(TABLE)


def _blocks() -> int:
    return 8 * kernels.multiprocessors()


def plain(codes: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    out = table.new_empty(len(starts) - 1)
    kernels.launch("by_number", _blocks(), THREADS, out, codes, starts, table, len(out))
    return out


def tuned(codes: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    out, following = table.new_empty(len(starts) - 1), torch.zeros_like(starts[:1])
    kernels.launch("by_ticket", _blocks(), THREADS, out, codes, starts, table, len(out), following)
    return out


def reference(codes: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    running = torch.nn.functional.pad(table[codes.long()].cumsum(0), (1, 0))
    return running[starts.long()].diff()


def work(codes: Tensor, starts: Tensor, table: Tensor) -> dict[str, float]:
    return {"bytes": codes.nbytes + starts.nbytes + 4 * len(starts)}
