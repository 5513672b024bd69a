"""
title: torch.compile that tries kernels for products
saves: time of products whose shape the library handles badly, and passes over their results
idea: >-
  In its default mode the compiler leaves products to cuBLAS, and puts what follows into a kernel of its own,
  which reads the product again. In max-autotune it generates Triton products of several tile sizes, with the
  elementwise rest inside, tries these and the library's, and keeps what was fastest.
cost: >-
  Minutes of compilation for a model at first; choices are kept on disk. Two passes over each result are
  saved where a generated kernel wins.
not_when: >-
  Products are large and square: cuBLAS wins, nothing is fused, and only compilation got longer. Shapes
  change: each is tried anew. Launches are the bottleneck: then reduce-overhead, or max-autotune as it is.
shows:
  - what: kernel families of the chain
    plain: a product of cuBLAS, and triton_poi_fused
    tuned: triton_tem_fused, where it won
  - what: dram__bytes_write.sum
    plain: each product, and again what is made of it
    tuned: what is made of it
needs: {gpu: true, torch: "2.1", packages: [triton]}
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

Given = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    rows, narrow, wide = (draw.size(gpu=g, cpu=c) for g, c in ((32768, 24), (256, 16), (2048, 48)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    x, gate = draw.normal(rows, narrow, dtype=dtype), draw.normal(rows, wide, dtype=dtype)
    return x, draw.normal(wide, narrow, dtype=dtype, scale=narrow**-0.5), gate


def _layer(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    return F.silu(F.linear(x, weight)) * gate + 1.0


@cache
def _compiled(mode: str) -> Any:
    return torch.compile(_layer, mode=mode)


def plain(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    return _compiled("default")(x, weight, gate)


def tuned(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    return _compiled("max-autotune-no-cudagraphs")(x, weight, gate)


def reference(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    return _layer(x, weight, gate)


def work(x: Tensor, weight: Tensor, gate: Tensor) -> dict[str, float | str]:
    moved = x.nbytes + weight.nbytes + 2 * gate.nbytes
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": moved, "unit": "matmul.bf16"}
