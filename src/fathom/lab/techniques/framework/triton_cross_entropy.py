"""
title: Cross-entropy and its gradient in one pass
saves: HBM bandwidth and memory
idea: >-
  The gradient of a cross-entropy is softmax minus one at the target. A program that holds the maximum and
  sum of a row (kept up to date block by block) writes loss and gradient in a second sweep, without the
  log-softmax that eager mode stores in between.
cost: >-
  The logits are read twice (the second time from L2, where the row is still there) and the gradient written
  once; eager mode reads and writes six times as much, in float32.
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

BLOCK = 1024
Result = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, words = draw.size(gpu=4096, cpu=4), draw.size(gpu=50304, cpu=2500)
    return draw.normal(rows, words, scale=2.0), draw.whole(0, words, rows)


def _by_autograd(logits: Tensor, targets: Tensor) -> Result:
    logits = logits.detach().requires_grad_()
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses.detach(), torch.autograd.grad(losses.sum(), logits)[0]


def plain(logits: Tensor, targets: Tensor) -> Result:
    return _by_autograd(logits, targets)


@triton.jit
def _cross_entropy(losses, gradient, logits, targets, words, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    highest, total = tl.full((), float("-inf"), tl.float32), tl.full((), 0.0, tl.float32)
    for first in range(0, words, SIZE):
        at = first + tl.arange(0, SIZE)
        part = tl.load(logits + row * words + at, mask=at < words, other=float("-inf"))
        higher = tl.maximum(highest, tl.max(part, axis=0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(part - higher), axis=0)
        highest = higher
    target = tl.load(targets + row)
    norm = highest + tl.log(total)
    tl.store(losses + row, norm - tl.load(logits + row * words + target))
    for first in range(0, words, SIZE):
        at = first + tl.arange(0, SIZE)
        part = tl.load(logits + row * words + at, mask=at < words, other=float("-inf"))
        share = tl.exp(part - norm) - tl.where(at == target, 1.0, 0.0)
        tl.store(gradient + row * words + at, share, mask=at < words)


def tuned(logits: Tensor, targets: Tensor) -> Result:
    rows, words = logits.shape
    losses, gradient = logits.new_empty(rows), torch.empty_like(logits)
    _cross_entropy[(rows,)](losses, gradient, logits, targets, words, SIZE=BLOCK)
    return losses, gradient


def reference(logits: Tensor, targets: Tensor) -> Result:
    return _by_autograd(logits, targets)


def work(logits: Tensor, targets: Tensor) -> dict[str, float]:
    return {"bytes": 2 * logits.nbytes}
