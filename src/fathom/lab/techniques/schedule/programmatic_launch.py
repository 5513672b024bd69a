"""
title: Kernels that begin before their predecessor ends
saves: the gap between kernels, and the latency of first loads
idea: >-
  One token through a stack of layers is a chain of small kernels, each of which waits for the last block of
  the one before, and only then starts to load its weights, which nobody is about to change. With
  programmatic dependent launch a kernel comes in as soon as all blocks of its predecessor run, loads its
  weights, and waits for the predecessor's result only where it needs that.
cost: >-
  An attribute of the launch and two instructions. Blocks that wait hold registers that others could use.
  Each layer waits for all of the one before still, and takes 3.5 of its 32 microseconds beyond what its
  bytes need on an H200: 89 % of the ceiling, where the plain form reaches 86 %. Layers of half the width
  gain more (1.08 times), and reach 70 %.
not_when: >-
  Kernels fill the chip for long (the gap is nothing then), or have nothing to do that does not depend on
  the one before. What is loaded ahead of the wait must be older than the whole chain.
shows:
  - what: gap between kernels
    plain: about a microsecond
    tuned: none; they overlap
  - what: dram__throughput.avg.pct_of_peak_sustained_elapsed
    plain: lower
    tuned: higher
findings: [kernels-weight-bound-decode]
needs: {capability: 9.0, packages: [triton], torch: "2.8"}
precision: bf16
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from fathom.lab import Draw

ROWS = 2  # of a program


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    layers, width = draw.size(gpu=24, cpu=3), draw.size(gpu=8192, cpu=64)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(width), draw.normal(layers, width, width, dtype=dtype, scale=width**-0.5)


@triton.jit
def _layer(out, weight, x, WIDTH: tl.constexpr, ROWS: tl.constexpr, EARLY: tl.constexpr):
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    if EARLY:
        gdc_launch_dependents()
    loaded = tl.load(weight + rows[:, None] * WIDTH + columns[None, :])
    if EARLY:
        gdc_wait()
    state = tl.load(x + columns)
    total = tl.sum(loaded.to(tl.float32) * state[None, :], axis=1)
    tl.store(out + rows, tl.load(x + rows) + tl.maximum(total, 0.0))


def _layers(x: Tensor, weights: Tensor, *, early: bool) -> Tensor:
    """`early`: all but the first layer, before which the weights may just have been written."""
    states = weights.new_empty(len(weights), len(x), dtype=x.dtype)
    for number, weight in enumerate(weights):
        how = {"launch_pdl": True} if early and number else {}
        grid = (len(x) // ROWS,)
        _layer[grid](states[number], weight, x, WIDTH=len(x), ROWS=ROWS, EARLY=early, num_warps=4, **how)
        x = states[number]
    return x.clone()


def plain(x: Tensor, weights: Tensor) -> Tensor:
    return _layers(x, weights, early=False)


def tuned(x: Tensor, weights: Tensor) -> Tensor:
    return _layers(x, weights, early=x.is_cuda)


def reference(x: Tensor, weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + torch.relu(weight.to(x.dtype) @ x)
    return x


def work(x: Tensor, weights: Tensor) -> dict[str, float]:
    return {"bytes": weights.nbytes}
