"""
title: A chain of launches in one kernel
saves: HBM bandwidth, and launches
idea: >-
  Bias and activation, the residual, the norm: each kernel reads what the one before it wrote. In one kernel
  a block holds its row in registers from the first operation to the last, and only inputs and the result
  pass through HBM.
cost: >-
  Seven passes over a tensor become three, three launches one. The kernel serves this chain and no other,
  and needs the registers of all its steps at once.
not_when: >-
  The steps share nothing (each needs another split of the work), the intermediate result is wanted anyway,
  or a compiler does it: see compiled-fusion.
shows:
  - what: dram__bytes_read.sum + dram__bytes_write.sum
    plain: seven times the tensor
    tuned: three times the tensor
  - what: kernel launches
    plain: three
    tuned: one
findings: [kernels-unfused-elementwise, kernels-unfused-norm]
reduction: 4096
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, WIDTH = 256, 4096
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    rows = draw.size(gpu=1 << 15, cpu=3)
    return draw.normal(rows, WIDTH), draw.normal(WIDTH), draw.normal(rows, WIDTH)


def plain(x: Tensor, bias: Tensor, skipped: Tensor) -> Tensor:
    out, rows = torch.empty_like(x), len(x)
    kernels.launch("activated", rows, THREADS, out, x, bias)
    kernels.launch("added", rows, THREADS, out, out, skipped)
    kernels.launch("normalised", rows, THREADS, out, out)
    return out


def tuned(x: Tensor, bias: Tensor, skipped: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch("all_at_once", len(x), THREADS, out, x, bias, skipped)
    return out


def reference(x: Tensor, bias: Tensor, skipped: Tensor) -> Tensor:
    mixed = F.gelu(x + bias) + skipped
    return mixed * torch.rsqrt((mixed * mixed).mean(dim=1, keepdim=True))


def work(x: Tensor, bias: Tensor, skipped: Tensor) -> dict[str, float]:
    return {"bytes": 3 * x.nbytes + bias.nbytes}
