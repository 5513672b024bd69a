"""Multiply each expert's tokens by its weights, in Triton.

    fathom lab run grouped-products

one_by_one launches a product per expert; grouped_products launches one kernel for all.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw, matmul_unit

TILE, K = 64, 32


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, experts = draw.shape([(8192, 150), (1024, 64), (64, 5)])
    chosen = draw.integers(0, experts, tokens)
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).int()
    x = draw.normal(tokens, width, dtype=draw.dtype)
    return x, draw.normal(experts, width, width, dtype=draw.dtype, scale=width**-0.5), ends


def one_by_one(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    parts, first = [], 0
    for weight, end in zip(weights, ends.tolist(), strict=True):
        parts.append(x[first:end] @ weight)
        first = end
    return torch.cat(parts)


@triton.jit
def _grouped(out, x, weights, ends, n, k, TILE: tl.constexpr, K: tl.constexpr):
    expert = tl.program_id(0).to(tl.int64)
    end = tl.load(ends + expert)
    first = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    for start in range(first, end, TILE):
        rows = start + tl.arange(0, TILE)
        total = tl.zeros((TILE, TILE), tl.float32)
        for inner in range(0, k, K):  # k is a multiple of K, n of TILE
            depth = inner + tl.arange(0, K)
            a = tl.load(x + rows[:, None] * k + depth[None, :], mask=rows[:, None] < end, other=0.0)
            b = tl.load(weights + expert * k * n + depth[:, None] * n + cols[None, :])
            total = tl.dot(a, b, total)
        tl.store(out + rows[:, None] * n + cols[None, :], total, mask=rows[:, None] < end)


def grouped_products(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """title: Group the products of experts
    pair: {group: framework, plain: one_by_one, reference: one_by_one}
    saves: launches, and idle multiprocessors
    idea: A mixture of experts multiplies each expert's tokens by its own weights. A loop launches a product
      per expert, most of them small, and asks the host how many tokens each one has. One kernel finds its
      expert from offsets on the device, and all tiles of all experts run side by side.
    cost: One program per expert and column of tiles walks over that expert's rows, so a single large expert
      delays the end.
    not_when: Few experts with many tokens each fill the chip one by one, or all have the same number (see
      batched-products).
    shows:
      kernel launches of products: one per expert → one
      ledger, idle by synchronisation: once per layer → none
    tips: [operators.experts]
    findings: {kernels-serial-small-products: 2, host-sync-item: 5}
    needs: {packages: [triton]}
    proof: {latency: included}"""
    experts, k, n = weights.shape
    out = x.new_empty(len(x), n)
    _grouped[(experts, n // TILE)](out, x, weights, ends, n, k, TILE=TILE, K=K, num_warps=4, num_stages=3)
    return out


def work(x: Tensor, weights: Tensor, ends: Tensor) -> dict[str, float | str]:
    return {
        "flops": 2.0 * x.numel() * weights.shape[2],
        "bytes": weights.nbytes + 2 * x.nbytes,
        "unit": matmul_unit(x),
    }
