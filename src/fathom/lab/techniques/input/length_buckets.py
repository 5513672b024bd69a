"""
title: Batches of like length
saves: arithmetic and bandwidth spent on padding
idea: >-
  A batch is padded to its longest sequence. Drawn at random, nearly every batch holds a long one, and all
  others are filled up to it. Sorted by length first, a batch holds sequences of about the same length.
cost: >-
  A sort of the lengths. Rows fall from batches times the longest of each to about the tokens themselves;
  lengths spread evenly from nothing to the limit make that nearly half.
not_when: >-
  Lengths hardly differ, sequences are packed into full rows anyway, or gradients must come from batches of
  mixed lengths: then sort within a pool of some batches only, which keeps most of it.
shows:
  - what: rows of the products, against the tokens that the program reports
    plain: near twice the tokens
    tuned: a few percent above
no_gain: >-
  H200 with a host too slow to keep it busy: 0.78 times as fast. Launches bound the step there, at a tenth of
  the products' ceiling, so shorter rows save nothing, and batches of many lengths cost the host more.
findings: [input-padding]
latency: included
cache: warm
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fathom.lab import Draw

BATCH = 32
Weights = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Weights]:
    draw = Draw(seed, device)
    samples, longest, width = (draw.size(gpu=g, cpu=c) for g, c in ((512, 128), (1024, 24), (1024, 16)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    lengths = Draw(seed, "cpu").integers(1, longest + 1, samples)
    tokens = draw.normal(int(lengths.sum()), width, dtype=dtype)
    weights = [draw.normal(width, width, dtype=dtype, scale=width**-0.5) for _ in range(2)]
    return tokens, lengths, (weights[0], weights[1])


def _means(sequences: list[Tensor], lengths: Tensor, weights: Weights) -> Tensor:
    """What a block makes of each sequence, averaged over its own tokens."""
    padded = pad_sequence(sequences, batch_first=True)
    hidden = F.gelu(padded @ weights[0]) @ weights[1]  # of padding: zero
    return hidden.sum(dim=1) / lengths.to(hidden).unsqueeze(1)


def _batched(tokens: Tensor, lengths: Tensor, weights: Weights, order: Tensor) -> Tensor:
    sequences = tokens.split(lengths.tolist())
    made = [
        _means([sequences[i] for i in batch.tolist()], lengths[batch], weights)
        for batch in order.split(BATCH)
    ]
    found = torch.empty_like(torch.cat(made))
    found[order.to(found.device)] = torch.cat(made)
    return found


def plain(tokens: Tensor, lengths: Tensor, weights: Weights) -> Tensor:
    return _batched(tokens, lengths, weights, torch.arange(len(lengths)))


def tuned(tokens: Tensor, lengths: Tensor, weights: Weights) -> Tensor:
    return _batched(tokens, lengths, weights, lengths.argsort())


def work(tokens: Tensor, lengths: Tensor, weights: Weights) -> dict[str, float | str]:
    unit = "matmul.bf16" if tokens.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 4.0 * tokens.numel() * weights[0].shape[1], "unit": unit}
