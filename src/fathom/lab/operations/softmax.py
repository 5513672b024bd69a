"""Compute the softmax of each row, in Triton.

    fathom lab run triton-softmax

eager passes over the rows five times; triton_softmax keeps a row in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import normal, traffic

inputs = normal(((32768, 5), (4096, 100)), scale=3.0)
work = traffic(2)


def eager(x: Tensor) -> Tensor:
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


def triton_softmax(x: Tensor) -> Tensor:
    """title: Read the rows of a softmax once
    pair: {group: framework, plain: eager}
    saves: HBM bandwidth
    idea: In eager mode a softmax passes over its rows five times, for maximum, difference, exponential, sum
      and quotient. A program that keeps a row in registers reads it once and writes it once.
    cost: Two passes instead of about eight. A row must fit in a program's registers, some 64 K elements.
    not_when: torch.softmax can be called (its kernel does this), or the softmax is part of attention, where
      the scores should not be written at all.
    shows: {dram__bytes_read.sum + dram__bytes_write.sum: about eight times the tensor → twice the tensor}
    tips: [frameworks.tile-languages, operators.softmax]
    findings: {kernels-unfused-elementwise: 5}
    needs: {packages: [triton]}"""
    out = torch.empty_like(x)
    rows, columns = x.shape
    _softmax[(rows,)](out, x, columns, WIDTH=triton.next_power_of_2(columns), num_warps=8)
    return out


def reference(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)
