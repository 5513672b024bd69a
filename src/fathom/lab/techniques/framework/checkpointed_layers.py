"""
title: Activations computed again in the backward pass
saves: memory of activations; it costs time
idea: >-
  Backward needs every layer's activations. Keeping only the input of each block, and running its forward
  pass again when its gradient is due, frees what lies in between for larger batches or models.
cost: >-
  One forward pass more: up to a third of the step. Memory falls from all activations to the blocks' inputs
  and one block's activations.
not_when: >-
  Memory is left over: then it only takes time, which this pair shows. Recompute cheap operations alone
  before whole blocks.
shows:
  - what: peak memory of the step
    plain: all activations
    tuned: the inputs of the blocks, and one block
  - what: forward kernels within the backward pass
    plain: none
    tuned: all of them once more
findings: [kernels-memory-headroom, kernels-needless-recomputation, host-allocator-retries]
gains: memory
cache: warm
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fathom.lab import Draw

BLOCKS = 6
HOW = {"use_reentrant": False, "preserve_rng_state": False}  # nothing is drawn in a block
Result = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width = draw.size(gpu=4096, cpu=512), draw.size(gpu=1024, cpu=16)
    return draw.normal(tokens, width), draw.normal(BLOCKS, 2, width, width, scale=width**-0.5)


def _block(x: Tensor, weights: Tensor) -> Tensor:
    return x + F.gelu(F.layer_norm(x, x.shape[1:]) @ weights[0]) @ weights[1]


def _gradients(x: Tensor, weights: Tensor, again: bool) -> Result:
    x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
    out = x
    for pair in weights:
        out = checkpoint(_block, out, pair, **HOW) if again else _block(out, pair)
    of_x, of_weights = torch.autograd.grad(out.square().mean(), (x, weights))
    return of_x, of_weights


def plain(x: Tensor, weights: Tensor) -> Result:
    return _gradients(x, weights, again=False)


def tuned(x: Tensor, weights: Tensor) -> Result:
    return _gradients(x, weights, again=True)


def work(x: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * len(x) * weights.numel(), "unit": "matmul.fp32"}
