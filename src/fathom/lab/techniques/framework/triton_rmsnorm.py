"""
title: Residual and RMS norm in one kernel
saves: HBM bandwidth and launches
idea: >-
  The sum with the residual, its squares' mean, the scaling and the cast are five passes in eager mode. One
  program a row reads both inputs once and writes both results once; the mean is taken in float32 registers.
cost: >-
  Four passes (two read, two written) in place of about twelve.
not_when: >-
  A compiler sees the norm anyway: it makes the same kernel. Rows longer than registers hold need a loop.
shows:
  - what: kernel launches in the norm
    plain: seven
    tuned: one
findings: [kernels-unfused-norm]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

EPSILON = 1e-6
Result = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, columns = draw.size(gpu=24576, cpu=5), draw.size(gpu=4096, cpu=100)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    x, residual = draw.normal(rows, columns, dtype=dtype), draw.normal(rows, columns, dtype=dtype)
    return x, residual, draw.normal(columns, dtype=dtype)


def _normed(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    total = x + residual
    wide = total if total.dtype == torch.float64 else total.float()
    scale = torch.rsqrt(wide.pow(2).mean(dim=1, keepdim=True) + EPSILON)
    return total, (wide * scale).to(total.dtype) * weight


def plain(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    return _normed(x, residual, weight)


@triton.jit
def _rmsnorm(total, normed, x, residual, weight, columns, EPS: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    inside = at < columns
    place = tl.program_id(0).to(tl.int64) * columns + at
    row = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    row += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)  # before anybody waits for the sum
    tl.store(total + place, row, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(row * row, axis=0) / columns + EPS)
    tl.store(normed + place, row * scale * factor, mask=inside)


def tuned(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    rows, columns = x.shape
    total, normed = torch.empty_like(x), torch.empty_like(x)
    width = triton.next_power_of_2(columns)
    _rmsnorm[(rows,)](total, normed, x, residual, weight, columns, EPS=EPSILON, WIDTH=width, num_warps=8)
    return total, normed


def reference(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    return _normed(x, residual, weight)


def work(x: Tensor, residual: Tensor, weight: Tensor) -> dict[str, float]:
    return {"bytes": 4 * x.nbytes}
