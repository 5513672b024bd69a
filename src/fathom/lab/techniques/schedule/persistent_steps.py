"""
title: One kernel that stays for all steps
saves: the launch, the filling and the draining of the chip between steps
idea: >-
  A step that takes two microseconds is followed by a gap of one, and by the time in which the last blocks
  run out and the first ones of the next kernel come in. A kernel whose blocks stay, and meet at a barrier
  in global memory between steps, is launched once.
cost: >-
  A barrier over the grid takes about a microsecond: an atomic addition a block, and reading until all have
  come. All blocks must run at the same time, so it is a cooperative launch of no more than fit.
not_when: >-
  Steps take longer than some ten microseconds; or a graph, or programmatic dependent launch, takes the gaps
  out without a barrier of one's own.
shows:
  - what: kernel launches
    plain: one a step
    tuned: one
  - what: sm__cycles_active.avg over sm__cycles_elapsed.max
    plain: two thirds
    tuned: near one
findings: [host-launch-bound]
cache: warm
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, STEPS = 512, 128
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    n = draw.size(gpu=1024, cpu=20)
    return draw.normal(n, n)


def plain(x: Tensor) -> Tensor:
    n, places = len(x), (torch.empty_like(x), torch.empty_like(x))
    for step in range(STEPS):
        x, before = places[step % 2], x
        kernels.launch("one_step", -(-n * n // THREADS), THREADS, x, before, n)
    return x


def tuned(x: Tensor) -> Tensor:
    out, other = torch.empty_like(x), torch.empty_like(x)
    arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
    grid = 2 * kernels.multiprocessors() if x.is_cuda else 1
    kernels.launch("all_steps", grid, THREADS, out, other, x, len(x), STEPS, arrived, together=True)
    return out


def reference(x: Tensor) -> Tensor:
    for _ in range(STEPS):
        before, x = x, x.clone()
        around = before[:-2, 1:-1] + before[2:, 1:-1] + before[1:-1, :-2] + before[1:-1, 2:]
        x[1:-1, 1:-1] += 0.2 * (around - 4 * before[1:-1, 1:-1])
    return x


def work(x: Tensor) -> dict[str, float | str]:
    return {"flops": 7.0 * STEPS * x.numel(), "bytes": 2 * x.nbytes, "unit": "vector.fp32"}
