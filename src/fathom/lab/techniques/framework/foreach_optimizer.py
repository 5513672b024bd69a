"""
title: Optimizer steps over lists of parameters
saves: launches, and HBM bandwidth between the steps of the update
idea: >-
  The same operation over a whole list of tensors is one launch (`torch._foreach_*`), so an update costs a
  dozen launches in all and not a dozen for each parameter. It works where a fused kernel does not exist.
cost: >-
  Launches fall by the number of parameters. Each operation still reads and writes its lists, so the bytes
  stay those of the loop, and temporaries take as much memory as the parameters.
not_when: >-
  The fused kernel takes these parameters (it saves the bytes too), memory is nearly full, or the parameters
  are few and large.
shows:
  - what: kernel launches inside the region of the optimizer's step
    plain: a dozen a parameter
    tuned: a dozen in all
findings: [kernels-for-loop-optimizer, host-launch-bound]
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
    return _stepped(weights, gradients, foreach=True)


def work(weights: Numbers, gradients: Numbers) -> dict[str, float]:
    return {"bytes": 3 * 28 * sum(weight.numel() for weight in weights)}
