"""
title: Elementwise chains through torch.compile
saves: HBM bandwidth and launches
idea: >-
  Each operation of an eager chain reads its input from HBM and writes its output back. The compiler makes
  one kernel of the chain: one read, one write, everything else in registers.
cost: >-
  Bytes fall by about the number of operations. Compilation takes seconds at first, and again for shapes
  that it has not met.
not_when: >-
  Products dominate the step, shapes change all the time, or the tensors fit into L2 and the device waits
  for launches anyway: then a graph of the eager kernels helps as much. Special functions bound what is left
  soon: with a second sigmoid in the chain the kernel was 12 % slower on an H200, with gelu's tanh it reached
  77 % of memory's ceiling.
shows:
  - what: kernel launches in the chain
    plain: one an operation
    tuned: one
  - what: dram__bytes_read.sum + dram__bytes_write.sum
    plain: about twice the tensor for each operation
    tuned: about twice the tensor in all
findings: [kernels-unfused-elementwise, framework-not-compiled]
precision: bf16
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, columns = draw.size(gpu=16384, cpu=16), draw.size(gpu=8192, cpu=24)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return (
        draw.normal(rows, columns, dtype=dtype),
        draw.normal(columns),
        draw.normal(rows, columns, dtype=dtype),
    )


def _chain(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    hidden = F.silu(x + bias.to(x.dtype))
    return hidden * residual + 0.5 * hidden


def plain(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return _chain(x, bias, residual)


def tuned(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return _compiled()(x, bias, residual)


@cache
def _compiled() -> Any:
    return torch.compile(_chain)


def work(x: Tensor, bias: Tensor, residual: Tensor) -> dict[str, float]:
    return {"bytes": 3 * x.nbytes}
