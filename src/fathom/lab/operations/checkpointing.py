"""Train layers whose activations take too much memory.

    fathom lab run checkpointed-layers recompute-or-offload

keeping_all stores the activations, and offloading sends them to the host. checkpointed_layers and
recompute_or_offload compute them again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from fathom.lab import Draw

BLOCKS = 6
HOW = {"use_reentrant": False, "preserve_rng_state": False}  # blocks draw no random numbers
Result = tuple[Tensor, Tensor]
Saving = Callable[[], AbstractContextManager[Any]]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width = draw.size(gpu=4096, cpu=512), draw.size(gpu=1024, cpu=16)
    return draw.normal(tokens, width), draw.normal(BLOCKS, 2, width, width, scale=width**-0.5)


def work(x: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * len(x) * weights.numel(), "unit": "matmul.fp32"}


def _block(x: Tensor, weights: Tensor) -> Tensor:
    return x + F.gelu(F.layer_norm(x, x.shape[1:]) @ weights[0]) @ weights[1]


def _gradients(x: Tensor, weights: Tensor, again: bool = False, saved: Saving = nullcontext) -> Result:
    x, weights = x.detach().requires_grad_(), weights.detach().requires_grad_()
    out = x
    for pair in weights:
        with saved():
            out = checkpoint(_block, out, pair, **HOW) if again else _block(out, pair)
    of_x, of_weights = torch.autograd.grad(out.square().mean(), (x, weights))
    return of_x, of_weights


def keeping_all(x: Tensor, weights: Tensor) -> Result:
    return _gradients(x, weights)


def checkpointed_layers(x: Tensor, weights: Tensor) -> Result:
    """title: Recompute activations in the backward pass
    pair: {group: framework, plain: keeping_all}
    saves: memory of activations, at the cost of time
    idea: The backward pass needs every layer's activations. Keeping only the input of each block, and
      repeating its forward pass when its gradient is due, frees the rest for larger batches or models.
    cost: One more forward pass, up to a third of the step. Memory falls from all activations to the blocks'
      inputs and one block's activations.
    not_when: There is enough memory; then it only takes time. Recompute cheap operations before whole blocks.
    shows:
      peak memory of the step: all activations → the inputs of the blocks, and one block
      forward kernels within the backward pass: none → all of them again
    tips: [allocation.retries, allocation.checkpoint-activations]
    findings: {kernels-memory-headroom: 2, kernels-needless-recomputation: 1, host-allocator-retries: 1}
    gains: memory
    proof: {cache: warm}"""
    return _gradients(x, weights, again=True)


def wide(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width = draw.size(gpu=4096, cpu=16), draw.size(gpu=2048, cpu=16)
    return draw.normal(tokens, width), draw.normal(BLOCKS, 2, width, width, scale=width**-0.5)


def offloading(x: Tensor, weights: Tensor) -> Result:
    return _gradients(x, weights, saved=lambda: save_on_cpu(pin_memory=x.is_cuda))


def recompute_or_offload(x: Tensor, weights: Tensor) -> Result:
    """title: Recompute activations instead of offloading them
    pair: {group: framework, plain: offloading, inputs: wide}
    saves: time of copies over the link
    idea: Where activations do not fit, save_on_cpu sends each to the host in the forward pass and fetches it
      in the backward pass, over a link with a hundredth of HBM's bandwidth. Recomputing a block from its
      input needs no host.
    cost: One more forward pass, a third of the arithmetic, instead of all activations twice over the link.
      Recomputing wins where a block does fewer FLOPs per saved byte than the chip's rate divided by the
      link's, some 14,000 in bf16.
    not_when: Copies overlap with enough arithmetic on another stream, the link is fast (NVLink-C2C), or
      memory suffices without either.
    shows:
      copies DtoH and HtoD in the step: each activation once each way → none
      forward kernels within the backward pass: none → all of them again
    tips: [allocation.use-memory, allocation.offload]
    findings: {kernels-memory-headroom: 1}
    needs: {gpu: true}
    proof: {latency: included, cache: warm}"""
    return _gradients(x, weights, again=True)
