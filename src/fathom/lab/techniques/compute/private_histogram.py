"""
title: Counting in shared memory first
saves: atomic operations on L2
idea: >-
  Atomics on one address are done one after the other, and a histogram of few bins hits the same addresses
  from all over the chip. Each block counts into bins of its own in shared memory, and adds them to the
  result once.
cost: >-
  Atomics on L2 fall from one an element to bins a block. Shared memory has atomics too, which wait for one
  another only within a block.
not_when: >-
  There are more bins than shared memory holds, or so few elements a block that emptying the bins costs
  more.
shows:
  - what: lts__t_requests_srcunit_tex_op_red.sum
    plain: one a warp and 32 elements, and more
    tuned: bins times blocks over 32
findings: [kernels-atomics]
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS = 256
BINS = 256
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    numbers = draw.normal(draw.size(gpu=1 << 27, cpu=5000), scale=20.0)
    return numbers.add_(128).clamp_(0, BINS - 1).to(torch.uint8)


def _counts(kernel: str, x: Tensor) -> Tensor:
    out = torch.zeros(BINS, dtype=torch.int32, device=x.device)
    kernels.launch(kernel, 8 * kernels.multiprocessors(), THREADS, out, x, x.numel())
    return out


def plain(x: Tensor) -> Tensor:
    return _counts("in_global", x)


def tuned(x: Tensor) -> Tensor:
    return _counts("in_shared", x)


def reference(x: Tensor) -> Tensor:
    return torch.bincount(x.flatten().int(), minlength=BINS).int()


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": x.nbytes}
