"""Update the parameters of a model with AdamW.

    fathom lab run foreach-optimizer fused-optimizer

in_a_loop launches a dozen kernels per parameter, foreach_optimizer a dozen in all, fused_optimizer a few.
"""

from __future__ import annotations

from functools import partial

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


def work(weights: Numbers, gradients: Numbers) -> dict[str, float]:
    return {"bytes": 3 * 28 * sum(weight.numel() for weight in weights)}


def _stepped(weights: Numbers, gradients: Numbers, **how: bool) -> Numbers:
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, **how)
    for _ in range(3):
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


in_a_loop = partial(_stepped, foreach=False)


def foreach_optimizer(weights: Numbers, gradients: Numbers) -> Numbers:
    """title: Update lists of parameters together
    pair: {group: framework, plain: in_a_loop}
    saves: launches
    idea: An operation over a whole list of tensors is one launch (`torch._foreach_*`), so an update takes a
      dozen launches in all instead of a dozen per parameter. It also works where no fused kernel exists.
    cost: Launches fall by the number of parameters. Each operation still reads and writes its lists, so bytes
      stay the same, and temporaries take as much memory as the parameters.
    not_when: The fused kernel supports these parameters (it saves bytes too), memory is nearly full, or there
      are a few large parameters.
    shows: {kernel launches in the optimizer's step: a dozen per parameter → a dozen in all}
    tips: [frameworks.foreach]
    findings: {kernels-for-loop-optimizer: 1, host-launch-bound: 9}
    proof: {latency: included}"""
    return _stepped(weights, gradients, foreach=True)


def fused_optimizer(weights: Numbers, gradients: Numbers) -> Numbers:
    """title: Update all parameters in one kernel
    pair: {group: framework, plain: in_a_loop}
    saves: launches, and HBM bandwidth between the steps of the update
    idea: A loop over parameters launches a dozen small kernels for each. With `fused=True`, a few launches
      update all of them and read and write weights, gradients and both moments once.
    cost: Adam moves at least 28 bytes per float32 parameter (four values read, three written). The loop moves
      more than twice as much, and pays for each launch.
    not_when: There are a few large parameters (only bandwidth matters then), gradients are unscaled or
      clipped in their own pass anyway, or parameters are of a subclass that the fused kernel does not
      support.
    shows: {kernel launches in the optimizer's step: a dozen per parameter → a few in all}
    tips: [frameworks.functional-optimizer]
    findings: {kernels-for-loop-optimizer: 2, kernels-unfused-optimizer: 1, host-launch-bound: 10}
    proof: {latency: included}"""
    return _stepped(weights, gradients, fused=True)
