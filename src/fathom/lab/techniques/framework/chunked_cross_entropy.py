"""
title: Cross-entropy from the last layer in chunks
saves: memory and HBM bandwidth of the logits
idea: >-
  The logits of a large vocabulary are the largest tensor of a step: tokens by vocabulary, in float32, with
  a gradient of the same size. Taking tokens in chunks, and computing the gradients of a chunk while its
  logits are there, never holds more than one chunk of them.
cost: >-
  The products are the same. Peak memory falls by the number of chunks; each chunk is a launch of every
  operation more, and small chunks make narrow products.
not_when: >-
  The vocabulary is small next to the width, memory is no concern, or a compiler already fuses loss and
  softmax: then the plain form may even be quicker.
shows:
  - what: peak memory of the step
    plain: two to three times tokens times vocabulary times 4 bytes
    tuned: that of one chunk
findings: [kernels-unfused-loss]
precision: bf16
cache: warm
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

CHUNKS = 8
Result = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, words = (draw.size(gpu=g, cpu=c) for g, c in ((8192, 64), (2048, 16), (65536, 100)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    hidden, weight = (
        draw.normal(tokens, width, dtype=dtype),
        draw.normal(words, width, dtype=dtype, scale=0.02),
    )
    return hidden, weight, draw.whole(0, words, tokens)


def plain(hidden: Tensor, weight: Tensor, targets: Tensor) -> Result:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    logits = F.linear(hidden, weight)
    loss = F.cross_entropy(logits.double() if logits.dtype == torch.float64 else logits.float(), targets)
    return loss.detach(), *torch.autograd.grad(loss, (hidden, weight))


def tuned(hidden: Tensor, weight: Tensor, targets: Tensor) -> Result:
    tokens = len(hidden)
    loss = torch.zeros((), device=hidden.device)
    of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32)
    for first in range(0, tokens, -(-tokens // CHUNKS)):
        part = slice(first, first + -(-tokens // CHUNKS))
        logits = F.linear(hidden[part], weight).float()
        chosen = targets[part].unsqueeze(1)
        total = logits.logsumexp(dim=1, keepdim=True)
        loss += (total - logits.gather(1, chosen)).sum()
        gradient = logits.sub_(total).exp_().scatter_add_(1, chosen, -torch.ones_like(total))
        gradient = gradient.div_(tokens).to(weight.dtype)
        torch.mm(gradient, weight, out=of_hidden[part])
        of_weight += gradient.t() @ hidden[part]
    return loss / tokens, of_hidden, of_weight.to(weight.dtype)


def work(hidden: Tensor, weight: Tensor, targets: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if hidden.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 6.0 * hidden.numel() * len(weight), "unit": unit}
