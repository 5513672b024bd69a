"""
title: Cross-entropy from the last layer in chunks
saves: memory and HBM bandwidth of the logits
idea: >-
  The logits of a large vocabulary are the largest tensor of a step: tokens by vocabulary, in float32, with
  a gradient of the same size. Taking tokens in chunks, and computing the gradients of a chunk while its
  logits are there, never holds more than one chunk of them. One kernel makes loss and gradient of a chunk,
  and writes the gradient over the logits.
cost: >-
  The products are the same. Peak memory of the logits falls by three times the number of chunks and more;
  small chunks make narrow products, and each reads and writes the gradient of the weights once more.
not_when: >-
  The vocabulary is small next to the width. With eager operations on each chunk it saves memory alone: it
  took 2.3 times as long as the plain form on an H200.
shows:
  - what: peak memory of the step
    plain: two to three times tokens times vocabulary times 4 bytes
    tuned: that of one chunk
findings: [kernels-unfused-loss]
needs: {packages: [triton]}
gains: memory
precision: bf16
cache: warm
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

CHUNKS = 8
BLOCK, WARPS, STAGES = 8192, 32, 3
SMALL = 32  # the block on a processor
Result = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, words = (draw.size(gpu=g, cpu=c) for g, c in ((8192, 64), (2048, 16), (65536, 100)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    hidden, weight = (
        draw.normal(tokens, width, dtype=dtype),
        draw.normal(words, width, dtype=dtype, scale=0.02),
    )
    return hidden, weight, draw.integers(0, words, tokens)


def _by_autograd(hidden: Tensor, weight: Tensor, targets: Tensor) -> Result:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    logits = F.linear(hidden, weight)
    loss = F.cross_entropy(logits.double() if logits.dtype == torch.float64 else logits.float(), targets)
    return loss.detach(), *torch.autograd.grad(loss, (hidden, weight))


def plain(hidden: Tensor, weight: Tensor, targets: Tensor) -> Result:
    return _by_autograd(hidden, weight, targets)


@triton.jit
def _in_place(losses, logits, targets, words, factor, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Losses of a chunk; its logits become `factor` times their gradients (see triton-cross-entropy)."""
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    mine, target = logits + row * words, tl.load(targets + row)
    chosen = tl.load(mine + target).to(tl.float32)
    highest, total = tl.full((SIZE,), -1e38, tl.float32), tl.zeros((SIZE,), tl.float32)
    for first in tl.range(0, words, SIZE, num_stages=STAGES):
        part = tl.load(mine + first + lanes, mask=first + lanes < words, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, part)
        total = total * tl.exp(highest - higher) + tl.exp(part - higher)
        highest = higher
    peak = tl.max(highest, axis=0)
    norm = peak + tl.log(tl.sum(total * tl.exp(highest - peak), axis=0))
    tl.store(losses + row, norm - chosen)
    last = (words - 1) // SIZE * SIZE
    for back in tl.range(0, words, SIZE, num_stages=STAGES):
        at = last - back + lanes
        part = tl.load(mine + at, mask=at < words, other=float("-inf")).to(tl.float32)
        share = tl.exp(part - norm) - tl.where(at == target, 1.0, 0.0)
        tl.store(mine + at, share * factor, mask=at < words)


def tuned(hidden: Tensor, weight: Tensor, targets: Tensor) -> Result:
    (tokens, _), words = hidden.shape, len(weight)
    losses = torch.empty(tokens, device=hidden.device)
    of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
    size, step = BLOCK if hidden.is_cuda else SMALL, triton.cdiv(tokens, CHUNKS)
    for here in (slice(first, first + step) for first in range(0, tokens, step)):
        logits = F.linear(hidden[here], weight)
        given = (losses[here], logits, targets[here], words, 1 / tokens)
        _in_place[(len(logits),)](*given, SIZE=size, STAGES=STAGES, num_warps=WARPS)
        torch.mm(logits, weight, out=of_hidden[here])
        of_weight.addmm_(logits.t(), hidden[here])
    return losses.mean(), of_hidden, of_weight


def reference(hidden: Tensor, weight: Tensor, targets: Tensor) -> Result:
    return _by_autograd(hidden, weight, targets)


def work(hidden: Tensor, weight: Tensor, targets: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if hidden.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 6.0 * hidden.numel() * len(weight), "unit": unit}
