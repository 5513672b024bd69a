"""
title: One kernel for all parameters of the optimizer
saves: launches, and HBM bandwidth between the steps of the update
idea: >-
  A loop over parameters launches a dozen small kernels for each of them; `fused=True` updates all of them
  in a few launches, and reads and writes weights, gradients and both moments once.
cost: >-
  Adam moves at least 28 bytes a float32 parameter (four read, three written). The loop moves more than
  twice that, and pays a launch for each of its kernels and parameters.
not_when: >-
  A few large parameters (launches don't matter, though bandwidth does), gradients that must be unscaled or
  clipped in a pass of their own anyway, or parameters of a subclass that the fused kernel does not take.
shows:
  - what: kernel launches inside the region of the optimizer's step
    plain: a dozen a parameter
    tuned: a few in all
findings: [kernels-for-loop-optimizer, kernels-unfused-optimizer, host-launch-bound]
latency: included
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

LAYERS = 48
Numbers = list[Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Numbers, Numbers]:
    draw = Draw(seed, device)
    width = draw.size(gpu=1024, cpu=32)
    shapes = [(width, width) if i % 2 else (width,) for i in range(LAYERS)]
    return [draw.normal(*shape) for shape in shapes], [draw.normal(*shape) for shape in shapes]


def _stepped(weights: Numbers, gradients: Numbers, **how: bool) -> Numbers:
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, **how)
    for _ in range(3):
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def plain(weights: Numbers, gradients: Numbers) -> Numbers:
    return _stepped(weights, gradients, foreach=False)


def tuned(weights: Numbers, gradients: Numbers) -> Numbers:
    return _stepped(weights, gradients, fused=True)


def work(weights: Numbers, gradients: Numbers) -> dict[str, float]:
    return {"bytes": 3 * 28 * sum(weight.numel() for weight in weights)}
