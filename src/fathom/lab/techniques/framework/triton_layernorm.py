"""
title: A layer norm in one pass
saves: HBM bandwidth and launches
idea: >-
  Mean, variance, normalisation, weight and bias each pass over the rows in eager mode. One program holds
  its row in registers: the variance is that of what it holds, in two steps, and so as exact as it can be.
cost: >-
  Two passes over the rows in place of about ten; a row must fit into the registers of a program.
not_when: >-
  F.layer_norm is called: its kernel is fused already, and the pair shows what a hand-written one costs.
  Short rows leave most of a program idle; let one take several.
shows:
  - what: kernel launches in the norm
    plain: seven or more
    tuned: one
findings: [kernels-unfused-norm]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

EPSILON = 1e-5


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    columns = draw.size(gpu=4096, cpu=100)
    return draw.normal(draw.size(gpu=32768, cpu=5), columns), draw.normal(columns), draw.normal(columns)


def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(dim=1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + EPSILON) * weight + bias


@triton.jit
def _layernorm(to, source, weight, bias, columns, EPS: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    inside = at < columns
    place = tl.program_id(0).to(tl.int64) * columns + at
    row = tl.load(source + place, mask=inside, other=0.0)
    factor, shift = tl.load(weight + at, mask=inside), tl.load(bias + at, mask=inside)
    centred = tl.where(inside, row - tl.sum(row, axis=0) / columns, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + EPS)
    tl.store(to + place, centred * scale * factor + shift, mask=inside)


def tuned(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    width = triton.next_power_of_2(columns)
    _layernorm[(rows,)](out, x, weight, bias, columns, EPS=EPSILON, WIDTH=width, num_warps=8)
    return out


def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[1],), weight, bias, EPSILON)


def work(x: Tensor, weight: Tensor, bias: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
