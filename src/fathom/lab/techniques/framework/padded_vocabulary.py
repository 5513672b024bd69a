"""
title: A vocabulary padded to a multiple of 64
saves: time of the last layer's product
idea: >-
  Rows of 50257 bf16 numbers begin at odd addresses, and kernels that load 16 bytes at a time cannot take
  them; the library falls back to narrower loads or smaller tiles. Padding the table to 50304 rows that are
  never chosen brings the fast kernels back.
cost: >-
  A thousandth more arithmetic and bytes; the added logits have to be cut off, or set to minus infinity.
not_when: >-
  The sizes are multiples of 64 already. Library versions differ in how much they lose.
shows:
  - what: kernel family of the last product
    plain: a small tile, or align1 or align2 in its name
    tuned: a large tile, align8
findings: [numbers-odd-vocabulary, numbers-odd-size]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

MULTIPLE = 64


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, words = (draw.size(gpu=g, cpu=c) for g, c in ((8192, 20), (768, 16), (50257, 157)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    hidden = draw.normal(tokens, width, dtype=dtype)
    table = draw.normal(words, width, dtype=dtype, scale=width**-0.5)
    return hidden, table, F.pad(table, (0, 0, 0, -words % MULTIPLE))


def plain(hidden: Tensor, table: Tensor, padded: Tensor) -> Tensor:
    return torch.logsumexp(F.linear(hidden, table), dim=1)


def tuned(hidden: Tensor, table: Tensor, padded: Tensor) -> Tensor:
    return torch.logsumexp(F.linear(hidden, padded)[:, : len(table)], dim=1)


def work(hidden: Tensor, table: Tensor, padded: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if hidden.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 2.0 * hidden.numel() * len(table), "unit": unit}
