"""
title: Weights pruned to two of four on sparse tensor cores
saves: time of the tensor cores, and half the bytes of the weights
idea: >-
  Where two of every four neighbouring weights are zero, only the other two are stored, with two bits each
  for their places. Sparse tensor cores choose the operands that meet them, and do twice the products in the
  same time.
cost: >-
  Compressing once (before, as here, where weights are fixed), and trying cuSPARSELt's algorithms once a
  shape: the first one is slower than the dense product. At best half the time; some 1.2 to 1.6 times as
  fast is usual, since the other operand and the result stay as large as they are.
not_when: >-
  Weights are not pruned so and trained to bear it, batches are small (bandwidth decides; fewer bits a weight
  save more), or the product is small next to launches.
shows:
  - what: kernel family of the product
    plain: bf16 (nvjet or wgmma)
    tuned: sparse (spgemm or sp in its name)
  - what: FLOP/s as of a dense product, against the dense peak
    plain: below it
    tuned: may exceed it
needs: {gpu: true, capability: 8.0, torch: "2.5"}
"""
# Only on a GPU: weights are compressed by cuSPARSELt.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width = 8192, 8192
    x, weight = draw.normal(tokens, width), draw.normal(width, width, scale=width**-0.5)
    fours = weight.view(width, -1, 4)
    least = fours.abs().topk(2, dim=-1, largest=False).indices
    pruned = fours.scatter(-1, least, 0.0).view_as(weight).bfloat16()
    return x.bfloat16(), pruned, torch._cslt_compress(pruned)


def plain(x: Tensor, pruned: Tensor, compressed: Tensor) -> Tensor:
    return F.linear(x, pruned)


_chosen: dict[tuple[torch.Size, torch.Size], int] = {}


def _algorithm(compressed: Tensor, x: Tensor) -> int:
    """The number of cuSPARSELt's algorithm that was the fastest for these shapes."""
    shapes = compressed.shape, x.shape
    if shapes not in _chosen:
        _chosen[shapes] = torch._cslt_sparse_mm_search(compressed, x.t(), transpose_result=True)
    return _chosen[shapes]


def tuned(x: Tensor, pruned: Tensor, compressed: Tensor) -> Tensor:
    # What a linear layer of to_sparse_semi_structured weights calls, on weights that were compressed before.
    how = {"transpose_result": True, "alg_id": _algorithm(compressed, x)}
    product: Tensor = torch._cslt_sparse_mm(compressed, x.t(), **how)
    return product


def work(x: Tensor, pruned: Tensor, compressed: Tensor) -> dict[str, float | str]:
    moved = 2 * x.nbytes + compressed.nbytes
    return {"flops": x.numel() * len(pruned), "bytes": moved, "unit": "matmul.bf16"}
