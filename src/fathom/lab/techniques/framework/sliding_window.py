"""
title: A window of attention as a block mask
saves: time of the tensor cores, and HBM bandwidth of the mask
idea: >-
  A dense mask makes attention compute every pair and throw most of them away. FlexAttention compiles the
  rule of the mask into the kernel, and skips tiles in which no pair is allowed.
cost: >-
  Compilation at first, and a block mask for each shape. Pairs fall from half the square of the length to
  length times window.
not_when: >-
  The mask is causal and nothing else: is_causal does it. The window is no smaller than the sequence.
shows:
  - what: kernel family of the attention
    plain: fmha with a bias, or the math backend
    tuned: triton_flex_attention
findings: [kernels-materialised-mask]
needs: {gpu: true, torch: "2.5", packages: [triton]}
"""
# Only on a GPU: the processor's form of FlexAttention takes a C++ compiler and minutes.

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

WINDOW = 512


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    shape = [draw.size(gpu=g, cpu=c) for g, c in ((2, 1), (16, 2), (8192, 64), (64, 16))]
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return (
        draw.normal(*shape, dtype=dtype),
        draw.normal(*shape, dtype=dtype),
        draw.normal(*shape, dtype=dtype),
    )


def _allowed(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (query - key < WINDOW)


@cache
def _dense(length: int, device: torch.device) -> Tensor:
    at = torch.arange(length, device=device)
    return _allowed(None, None, at[:, None], at[None, :])


def _masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_dense(q.shape[2], q.device))


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _masked(q, k, v)


@cache
def _flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@cache
def _blocks(length: int) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(_allowed, None, None, length, length, device="cuda")


def tuned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _flex()(q, k, v, block_mask=_blocks(q.shape[2]))


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _masked(q, k, v)


def work(q: Tensor, k: Tensor, v: Tensor) -> dict[str, float | str]:
    batch, heads, length, size = q.shape
    pairs = WINDOW * length - WINDOW * (WINDOW - 1) / 2
    return {"flops": 4.0 * batch * heads * pairs * size, "bytes": 4 * q.nbytes, "unit": "matmul.bf16"}
