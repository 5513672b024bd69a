"""
title: Cross-entropy and its gradient in one pass
saves: HBM bandwidth and memory
idea: >-
  The gradient of a cross-entropy is softmax minus one at the target. A program that holds a whole row in
  registers reads it once, and writes loss and gradient without the log-softmax that eager mode stores in
  between.
cost: >-
  The logits are read once and the gradient written once; eager mode reads and writes six times as much, in
  float32. A row of 16,000 takes a quarter of a multiprocessor's registers, so two programs run there, and
  one reads while the other computes. A row of 32,000 takes half of them, and its program runs alone: it
  reads, then computes, then writes (88 % of memory's ceiling on an H200).
not_when: >-
  The logits need not be written at all: see chunked-cross-entropy. Small vocabularies don't show. Rows
  beyond 32,768 elements are not held whole: with the rest of 50,304 read twice, 69 % of the ceiling.
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

WARPS = 16
Result = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, words = draw.size(gpu=13200, cpu=4), draw.size(gpu=16000, cpu=2500)
    return draw.normal(rows, words, scale=2.0), draw.integers(0, words, rows)


def _by_autograd(logits: Tensor, targets: Tensor) -> Result:
    logits = logits.detach().requires_grad_()
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses.detach(), torch.autograd.grad(losses.sum(), logits)[0]


def plain(logits: Tensor, targets: Tensor) -> Result:
    return _by_autograd(logits, targets)


@triton.jit
def _cross_entropy(losses, gradient, logits, targets, words, SIZE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    mine, there = logits + row * words, at < words
    held = tl.load(mine + at, mask=there, other=float("-inf"), eviction_policy="evict_first")
    target = tl.load(targets + row)  # after the row: what needs its place waits for it, and so would the row
    wanted = tl.load(mine + target)
    peak = tl.max(held, axis=0)
    powers = tl.exp(held - peak)
    total = tl.sum(powers, axis=0)
    share = powers * (1.0 / total) - tl.where(at == target, 1.0, 0.0)
    tl.store(gradient + row * words + at, share, mask=there)
    tl.store(losses + row, peak + tl.log(total) - wanted)


def tuned(logits: Tensor, targets: Tensor) -> Result:
    rows, words = logits.shape
    losses, gradient = logits.new_empty(rows), torch.empty_like(logits)
    given = (losses, gradient, logits, targets, words)
    _cross_entropy[(rows,)](*given, SIZE=triton.next_power_of_2(words), num_warps=WARPS, maxnreg=64)
    return losses, gradient


def reference(logits: Tensor, targets: Tensor) -> Result:
    return _by_autograd(logits, targets)


def work(logits: Tensor, targets: Tensor) -> dict[str, float]:
    return {"bytes": 2 * logits.nbytes}
