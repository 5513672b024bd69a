"""
title: Attention that never writes its scores
saves: HBM bandwidth and memory, both quadratic in the length
idea: >-
  Written out, attention stores a matrix of length by length twice. scaled_dot_product_attention goes
  through it in tiles with a running maximum and sum, so the scores stay in registers and shared memory.
cost: >-
  Bytes fall from about 8 B H L² to those of q, k, v and the output. FLOPs stay; a causal mask halves them,
  which the written form cannot use.
not_when: >-
  The lengths are so short that launches decide, the scores themselves are wanted, or a dense mask of one's
  own sends the call to another backend: is_causal or FlexAttention keep it.
shows:
  - what: kernel families inside the attention
    plain: two products, a mask, a scaling and a softmax, each over the whole matrix of scores
    tuned: one (cudnn or flash)
  - what: peak memory
    plain: grows with the square of the length
    tuned: grows with the length
findings: [kernels-math-attention, kernels-materialised-mask]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    shape = [draw.size(gpu=g, cpu=c) for g, c in ((4, 1), (16, 2), (4096, 48), (128, 16))]
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return (
        draw.normal(*shape, dtype=dtype),
        draw.normal(*shape, dtype=dtype),
        draw.normal(*shape, dtype=dtype),
    )


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return F.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v


def tuned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def work(q: Tensor, k: Tensor, v: Tensor) -> dict[str, float | str]:
    batch, heads, length, size = q.shape
    unit = "matmul.bf16" if q.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 2.0 * batch * heads * length**2 * size, "bytes": 4 * q.nbytes, "unit": unit}
