"""Compute the cross-entropy of a vocabulary and its gradient, in Triton.

    fathom lab run triton-cross-entropy chunked-cross-entropy

by_autograd stores a log-softmax; triton_cross_entropy makes loss and gradient in one pass. from_all_logits
stores the logits of all tokens; chunked_cross_entropy holds those of one chunk.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw, matmul_unit, traffic

WARPS = 16
Result = tuple[Tensor, Tensor]
work = traffic(2)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, words = draw.size(gpu=13200, cpu=4), draw.size(gpu=16000, cpu=2500)
    return draw.normal(rows, words, scale=2.0), draw.integers(0, words, rows)


def by_autograd(logits: Tensor, targets: Tensor) -> Result:
    logits = logits.detach().requires_grad_()
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses.detach(), torch.autograd.grad(losses.sum(), logits)[0]


@triton.jit
def _cross_entropy(losses, gradient, logits, targets, words, SIZE: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    mine, there = logits + row * words, at < words
    values = tl.load(mine + at, mask=there, other=float("-inf"), eviction_policy="evict_first")
    target = tl.load(targets + row)  # after the row: what needs its place waits for it, and so would the row
    wanted = tl.load(mine + target)
    peak = tl.max(values, axis=0)
    powers = tl.exp(values - peak)
    total = tl.sum(powers, axis=0)
    share = powers * (1.0 / total) - tl.where(at == target, 1.0, 0.0)
    tl.store(gradient + row * words + at, share, mask=there)
    tl.store(losses + row, peak + tl.log(total) - wanted)


def triton_cross_entropy(logits: Tensor, targets: Tensor) -> Result:
    """title: Compute cross-entropy and its gradient in one pass
    pair: {group: framework, plain: by_autograd, reference: by_autograd}
    saves: HBM bandwidth and memory
    idea: The gradient of a cross-entropy is softmax minus one at the target. A program that keeps a row in
      registers reads it once and writes loss and gradient, without the log-softmax that eager mode stores in
      between.
    cost: The logits are read once and the gradient is written once. Eager mode reads and writes six times as
      much, in float32. A row of 16,000 takes a quarter of a multiprocessor's registers, so one program reads
      while another computes. A row of 32,000 takes half, and its program runs alone (88 % of HBM's ceiling on
      an H200).
    not_when: The logits need not be written at all (see chunked-cross-entropy), or the vocabulary is small.
      Rows beyond 32,768 elements do not fit; reading the rest of 50,304 twice reached 69 % of the ceiling.
    shows:
      kernel launches in the loss, forward and backward: five or six → one
    tips: [operators.cross-entropy]
    findings: {kernels-unfused-loss: 2}
    needs: {packages: [triton]}"""
    rows, words = logits.shape
    losses, gradient = logits.new_empty(rows), torch.empty_like(logits)
    given = (losses, gradient, logits, targets, words)
    _cross_entropy[(rows,)](*given, SIZE=triton.next_power_of_2(words), num_warps=WARPS, maxnreg=64)
    return losses, gradient


# From the last layer's inputs and weights
CHUNKS = 8
BLOCK, SMALL, STAGES = 8192, 32, 3  # elements of a block on a GPU and on a processor
Gradients = tuple[Tensor, Tensor, Tensor]


def layer_inputs(seed: int, device: str | None = None) -> Gradients:
    draw = Draw(seed, device)
    tokens, width, words = draw.shape([(8192, 64), (2048, 16), (65536, 100)])
    hidden = draw.normal(tokens, width, dtype=draw.dtype)
    weight = draw.normal(words, width, dtype=draw.dtype, scale=0.02)
    return hidden, weight, draw.integers(0, words, tokens)


def from_all_logits(hidden: Tensor, weight: Tensor, targets: Tensor) -> Gradients:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    logits = F.linear(hidden, weight)
    loss = F.cross_entropy(logits.double() if logits.dtype == torch.float64 else logits.float(), targets)
    return loss.detach(), *torch.autograd.grad(loss, (hidden, weight))


@triton.jit
def _in_place(losses, logits, targets, words, factor, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Store the losses of a chunk, and replace its logits by `factor` times their gradients."""
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


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Gradients:
    """title: Compute the last layer and its cross-entropy in chunks
    pair: {group: framework, plain: from_all_logits, reference: from_all_logits, inputs: layer_inputs, work:
      layer_work}
    saves: memory and HBM bandwidth of the logits
    idea: The logits of a large vocabulary are the largest tensor of a step, tokens by vocabulary in float32,
      with a gradient of the same size. Computing the gradients of a chunk of tokens while its logits exist
      never holds more than one chunk. One kernel makes loss and gradient of a chunk and writes the gradient
      over the logits.
    cost: The products are the same. Peak memory of the logits falls by three times the number of chunks and
      more. Small chunks make narrow products, and each reads and writes the gradient of the weights again.
    not_when: The vocabulary is small compared with the width. With eager operations on each chunk it saves
      only memory, and took 2.3 times as long as the plain form on an H200.
    shows:
      peak memory of the step: two to three times tokens times vocabulary times 4 bytes → that of one chunk
    tips: [operators.chunked-loss]
    findings: {kernels-unfused-loss: 1}
    needs: {packages: [triton]}
    gains: memory
    proof: {precision: bf16, cache: warm}"""
    (tokens, _), words = hidden.shape, len(weight)
    losses = torch.empty(tokens, device=hidden.device)
    of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
    size, step = BLOCK if hidden.is_cuda else SMALL, triton.cdiv(tokens, CHUNKS)
    for here in (slice(first, first + step) for first in range(0, tokens, step)):
        logits = F.linear(hidden[here], weight)
        given = (losses[here], logits, targets[here], words, 1 / tokens)
        _in_place[(len(logits),)](*given, SIZE=size, STAGES=STAGES, num_warps=32)
        torch.mm(logits, weight, out=of_hidden[here])
        of_weight.addmm_(logits.t(), hidden[here])
    return losses.mean(), of_hidden, of_weight


def layer_work(hidden: Tensor, weight: Tensor, targets: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * hidden.numel() * len(weight), "unit": matmul_unit(hidden)}
