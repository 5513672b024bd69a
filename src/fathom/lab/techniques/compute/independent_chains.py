"""
title: Several short chains in place of a long one
saves: time in which the arithmetic units wait for a result
idea: >-
  A polynomial by Horner's rule is one chain: each multiply-add waits four cycles for the one before it.
  Four polynomials in the fourth power have chains a quarter as long, side by side.
cost: >-
  A few multiplications more, and registers for the parts. Where latency is the bound, time falls by up to
  the number of chains.
not_when: >-
  Enough warps hide the latency: with four or more a scheduler that are ready, the extra multiplications
  only cost. Here one warp a scheduler is all that there is to do.
shows:
  - what: smsp__average_warps_issue_stalled_wait_per_issue_active
    plain: the largest stall
    tuned: about a third of it
findings: [kernels-low-occupancy, kernels-batch-too-small]
cache: warm
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 128
TERMS, STEPS = 32, 256
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.uniform(THREADS * (kernels.multiprocessors() if draw.device == "cuda" else 2))


def _iterated(kernel: str, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch(kernel, -(-x.numel() // THREADS), THREADS, out, x, x.numel())
    return out


def plain(x: Tensor) -> Tensor:
    return _iterated("horner", x)


def tuned(x: Tensor) -> Tensor:
    return _iterated("by_fours", x)


def reference(x: Tensor) -> Tensor:
    y = 0.5 * x
    for _ in range(STEPS):
        value = torch.zeros_like(y)
        for term in reversed(range(TERMS)):
            value = value * y + 0.5 / (term + 1)
        y = 0.5 * x + 0.25 * value
    return y


def work(x: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * STEPS * TERMS * x.numel(), "unit": "vector.fp32"}
