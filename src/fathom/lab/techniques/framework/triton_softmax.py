"""
title: A softmax that reads its rows once
saves: HBM bandwidth
idea: >-
  Written out, a softmax passes over its rows five times: maximum, difference, exponential, sum, quotient.
  One program that holds a row in registers reads it once and writes it once.
cost: >-
  Two passes in place of about eight. A row must fit into the registers of a program: some 64 K elements.
not_when: >-
  torch.softmax does it already (this is what its kernel is), or the softmax is part of an attention, where
  not even the scores should be written.
shows:
  - what: dram__bytes_read.sum + dram__bytes_write.sum
    plain: about eight times the tensor
    tuned: twice the tensor
findings: [kernels-unfused-elementwise]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=32768, cpu=5), draw.size(gpu=4096, cpu=100), scale=3.0)


def plain(x: Tensor) -> Tensor:
    shifted = x - x.max(dim=1, keepdim=True).values
    powers = torch.exp(shifted)
    return powers / powers.sum(dim=1, keepdim=True)


@triton.jit
def _softmax(to, source, columns, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    inside = at < columns
    first = tl.program_id(0).to(tl.int64) * columns
    row = tl.load(source + first + at, mask=inside, other=float("-inf"))
    powers = tl.exp(row - tl.max(row, axis=0))
    tl.store(to + first + at, powers / tl.sum(powers, axis=0), mask=inside)


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    rows, columns = x.shape
    _softmax[(rows,)](out, x, columns, WIDTH=triton.next_power_of_2(columns), num_warps=8)
    return out


def reference(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
