"""Normalise rows by their mean and variance or by their root mean square, in Triton.

    fathom lab run triton-layernorm triton-rmsnorm

eager and eager_with_residual launch a kernel per operation; the tuned forms keep a row in registers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import normal, traffic

ROWS, COLUMNS = (32768, 5), (4096, 100)  # on a GPU, on a processor
inputs = normal((ROWS, COLUMNS), (COLUMNS,), (COLUMNS,))
work = traffic(2)
EPSILON, RMS_EPSILON = 1e-5, 1e-6


def eager(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
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


def triton_layernorm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """title: Compute a layer norm in one pass
    pair: {group: framework, plain: eager}
    saves: HBM bandwidth and launches
    idea: In eager mode, mean, variance, normalisation, weight and bias each pass over the rows. One program
      keeps its row in registers and computes the variance from it in two steps, which is as exact as
      possible.
    cost: Two passes over the rows instead of about ten. A row must fit in a program's registers.
    not_when: F.layer_norm can be called; its kernel is already fused. Short rows leave most of a program
      idle, so let one program take several.
    shows: {kernel launches in the norm: seven or more → one}
    tips: [operators.fused-norm]
    findings: {kernels-unfused-norm: 1}
    needs: {packages: [triton]}"""
    rows, columns = x.shape
    out = torch.empty_like(x)
    width = triton.next_power_of_2(columns)
    _layernorm[(rows,)](out, x, weight, bias, columns, EPS=EPSILON, WIDTH=width, num_warps=8)
    return out


def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[1],), weight, bias, EPSILON)


Result = tuple[Tensor, Tensor]
BATCH = (24576, 5)
rms_inputs = normal((BATCH, COLUMNS), (BATCH, COLUMNS), (COLUMNS,), narrow=True)
rms_work = traffic(4)


def eager_with_residual(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    total = x + residual
    wide = total if total.dtype == torch.float64 else total.float()
    scale = torch.rsqrt(wide.pow(2).mean(dim=1, keepdim=True) + RMS_EPSILON)
    return total, (wide * scale).to(total.dtype) * weight


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


def triton_rmsnorm(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    """title: Fuse a residual and its RMS norm
    pair: {group: framework, plain: eager_with_residual, reference: eager_with_residual, inputs: rms_inputs,
      work: rms_work}
    saves: HBM bandwidth and launches
    idea: In eager mode the residual sum, the mean of squares, the scaling and the cast are five passes. One
      program per row reads both inputs once and writes both results once, with the mean in float32 registers.
    cost: Four passes (two read, two written) instead of about twelve.
    not_when: A compiler sees the norm, and makes the same kernel. Rows that do not fit in registers need a
      loop.
    shows: {kernel launches in the norm: seven → one}
    tips: [operators.residual-norm]
    findings: {kernels-unfused-norm: 2}
    needs: {packages: [triton]}"""
    rows, columns = x.shape
    total, normed = torch.empty_like(x), torch.empty_like(x)
    width = triton.next_power_of_2(columns)
    _rmsnorm[(rows,)](total, normed, x, residual, weight, columns, EPS=RMS_EPSILON, WIDTH=width, num_warps=8)
    return total, normed
