"""
title: One path with chosen coefficients
saves: issue slots of lanes that wait
idea: >-
  Lanes of a warp that take different branches wait for one another: the warp walks both. Where both sides
  have the same shape, the condition can choose coefficients, and the lanes walk one path.
cost: >-
  Time falls from the sum of the sides to the longer one; a select for each coefficient.
not_when: >-
  The sides have nothing in common, whole warps agree (sorting by kind makes them), or the sides are so
  short that the compiler predicates them anyway.
shows:
  - what: smsp__thread_inst_executed_per_inst_executed.ratio
    plain: about 16 of 32
    tuned: about 32
findings: [kernels-divergence]
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, STEPS = 256, 64
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return 2 * draw.uniform(draw.size(gpu=1 << 24, cpu=1000)) - 1


def _stepped(kernel: str, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch(kernel, -(-x.numel() // THREADS), THREADS, out, x, x.numel())
    return out


def plain(x: Tensor) -> Tensor:
    return _stepped("branching", x)


def tuned(x: Tensor) -> Tensor:
    return _stepped("selecting", x)


def reference(x: Tensor) -> Tensor:
    rise, shift = torch.where(x > 0, 0.125, -0.125), torch.where(x > 0, 0.25, 0.5)
    value = x
    for _ in range(STEPS):
        value = rise * value * value + 0.5 * value + shift * x
    return value


def work(x: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * STEPS * x.numel(), "bytes": 2 * x.nbytes, "unit": "vector.fp32"}
