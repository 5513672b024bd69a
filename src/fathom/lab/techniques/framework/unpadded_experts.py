"""
title: Experts without room for tokens that never come
saves: arithmetic and bandwidth spent on padding, and a wait of the host
idea: >-
  To multiply all experts in one batched product, each gets room for as many tokens as the busiest, and the
  host has to know how many that are. A grouped product takes the tokens sorted by expert, and where each
  expert's end, on the device.
cost: >-
  The library's grouped kernel instead of its batched one. Rows fall from experts times the busiest to the
  tokens themselves: by half where the busiest has twice its share.
not_when: >-
  The router balances perfectly, or drops what exceeds a fixed capacity anyway; few experts; other dtypes than
  bf16, for which torch falls back to a loop.
shows:
  - what: rows of the products, against the tokens
    plain: experts times the busiest
    tuned: the tokens
  - what: ledger, idle by synchronisation
    plain: once a layer
    tuned: none
findings: [host-sync-item]
needs: {gpu: true, capability: 8.0, torch: "2.10"}
latency: included
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, out, experts = (
        draw.size(gpu=g, cpu=c) for g, c in ((16384, 60), (2048, 32), (2048, 16), (64, 4))
    )
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    chosen = (experts * draw.uniform(tokens) ** 1.5).long().clamp(max=experts - 1)  # some are liked better
    counts = torch.bincount(chosen, minlength=experts)
    x = draw.normal(tokens, width, dtype=dtype)
    return x, draw.normal(experts, width, out, dtype=dtype, scale=width**-0.5), counts


def plain(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    return _padded(x, weights, counts)


def _padded(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    room, ends = int(counts.max()), counts.cumsum(0)
    expert = torch.searchsorted(ends, torch.arange(len(x), device=x.device), right=True)
    place = torch.arange(len(x), device=x.device) - (ends - counts)[expert]
    padded = x.new_zeros(len(weights), room, x.shape[1])
    padded[expert, place] = x
    return torch.bmm(padded, weights)[expert, place]


def tuned(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    return F.grouped_mm(x, weights, offs=counts.cumsum(0).int())


def reference(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    return _padded(x, weights, counts)


def work(x: Tensor, weights: Tensor, counts: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if x.dtype == torch.bfloat16 else "vector.fp32"
    moved = weights.nbytes + x.nbytes + x.nbytes * weights.shape[2] / weights.shape[1]
    return {"flops": 2.0 * x.numel() * weights.shape[2], "bytes": moved, "unit": unit}
