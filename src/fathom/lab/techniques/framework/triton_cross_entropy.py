"""
title: Cross-entropy and its gradient in one pass
saves: HBM bandwidth and memory
idea: >-
  The gradient of a cross-entropy is softmax minus one at the target. A program that holds the maximum and
  sum of a row (kept up to date block by block, for each lane) writes loss and gradient in a second sweep,
  backwards, without the log-softmax that eager mode stores in between.
cost: >-
  The logits are read twice and the gradient written once; one large program a multiprocessor has so few
  rows under way that the second read comes from L2 (with eight small ones it came from HBM again). Eager
  mode reads and writes six times as much, in float32.
not_when: >-
  The logits need not be written at all: see chunked-cross-entropy. Small vocabularies don't show.
shows:
  - what: kernel launches in the loss, forward and backward
    plain: five or six
    tuned: one
findings: [kernels-unfused-loss]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

BLOCK, WARPS, STAGES = 8192, 32, 3
SMALL = 1024  # the block on a processor
Result = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, words = draw.size(gpu=4224, cpu=4), draw.size(gpu=50304, cpu=2500)
    return draw.normal(rows, words, scale=2.0), draw.whole(0, words, rows)


def _by_autograd(logits: Tensor, targets: Tensor) -> Result:
    logits = logits.detach().requires_grad_()
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses.detach(), torch.autograd.grad(losses.sum(), logits)[0]


def plain(logits: Tensor, targets: Tensor) -> Result:
    return _by_autograd(logits, targets)


@triton.jit
def _cross_entropy(losses, gradient, logits, targets, words, SIZE: tl.constexpr, STAGES: tl.constexpr):
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    mine = logits + row * words
    highest, total = tl.full((SIZE,), -1e38, tl.float32), tl.zeros((SIZE,), tl.float32)
    for first in tl.range(0, words, SIZE, num_stages=STAGES):
        part = tl.load(mine + first + lanes, mask=first + lanes < words, other=float("-inf"))
        higher = tl.maximum(highest, part)
        total = total * tl.exp(highest - higher) + tl.exp(part - higher)
        highest = higher
    peak = tl.max(highest, axis=0)
    norm = peak + tl.log(tl.sum(total * tl.exp(highest - peak), axis=0))
    target = tl.load(targets + row)
    tl.store(losses + row, norm - tl.load(mine + target))
    last = (words - 1) // SIZE * SIZE
    for back in tl.range(0, words, SIZE, num_stages=STAGES):  # what was read last is surely in L2
        at = last - back + lanes
        part = tl.load(mine + at, mask=at < words, other=float("-inf"), eviction_policy="evict_first")
        share = tl.exp(part - norm) - tl.where(at == target, 1.0, 0.0)
        tl.store(gradient + row * words + at, share, mask=at < words, cache_modifier=".cs")


def tuned(logits: Tensor, targets: Tensor) -> Result:
    rows, words = logits.shape
    losses, gradient = logits.new_empty(rows), torch.empty_like(logits)
    size = BLOCK if logits.is_cuda else SMALL
    given = (losses, gradient, logits, targets, words)
    _cross_entropy[(rows,)](*given, SIZE=size, STAGES=STAGES, num_warps=WARPS)
    return losses, gradient


def reference(logits: Tensor, targets: Tensor) -> Result:
    return _by_autograd(logits, targets)


def work(logits: Tensor, targets: Tensor) -> dict[str, float]:
    return {"bytes": 2 * logits.nbytes}
