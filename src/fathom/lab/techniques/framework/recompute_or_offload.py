"""
title: Activations computed again rather than sent to the host
saves: time of copies over the link
idea: >-
  Where activations don't fit, save_on_cpu sends each to the host in the forward pass and fetches it in the
  backward pass, over a link with a hundredth of HBM's bandwidth. Computing a block again from its input
  needs nothing of the host.
cost: >-
  One forward pass more, a third of the arithmetic, against all activations twice over the link. Recomputing
  wins where a block does fewer FLOPs for a byte that it would save than the ratio of the chip's rate to
  the link's: some 14000 in bf16.
not_when: >-
  Copies are overlapped with arithmetic on a stream of their own and arithmetic is long enough to hide them,
  the host is joined by a fast link (NVLink-C2C), or memory is free: then do neither.
shows:
  - what: copies DtoH and HtoD in the step
    plain: each activation once each way
    tuned: none
  - what: forward kernels within the backward pass
    plain: none
    tuned: all of them once more
findings: [kernels-memory-headroom]
needs: {gpu: true}
latency: included
cache: warm
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from fathom.lab import Draw

BLOCKS = 6
HOW = {"use_reentrant": False, "preserve_rng_state": False}  # nothing is drawn in a block
Result = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width = draw.size(gpu=4096, cpu=16), draw.size(gpu=2048, cpu=16)
    return draw.normal(tokens, width), draw.normal(BLOCKS, 2, width, width, scale=width**-0.5)


def _block(x: Tensor, weights: Tensor) -> Tensor:
    return x + F.gelu(F.layer_norm(x, x.shape[1:]) @ weights[0]) @ weights[1]


def _gradients(out: Tensor, x: Tensor, weights: Tensor) -> Result:
    of_x, of_weights = torch.autograd.grad(out.square().mean(), (x, weights))
    return of_x, of_weights


def _on_host(x: Tensor) -> AbstractContextManager[None]:
    kept: AbstractContextManager[None] = save_on_cpu(pin_memory=x.is_cuda)
    return kept


def plain(x: Tensor, weights: Tensor) -> Result:
    x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
    out = x
    for pair in weights:
        with _on_host(x):
            out = _block(out, pair)
    return _gradients(out, x, weights)


def tuned(x: Tensor, weights: Tensor) -> Result:
    x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
    out = x
    for pair in weights:
        out = checkpoint(_block, out, pair, **HOW)
    return _gradients(out, x, weights)


def work(x: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * len(x) * weights.numel(), "unit": "matmul.fp32"}
