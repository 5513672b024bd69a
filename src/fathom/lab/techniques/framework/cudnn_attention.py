"""
title: cuDNN's attention where another backend was pinned
saves: time of the tensor cores
idea: >-
  Programs pin the backend of scaled_dot_product_attention that was best on the chip before, or one that a
  library asked for. The flash kernels in torch are of the second generation and feed tensor cores with
  mma.sync; cuDNN's are made for Hopper: wgmma, the copy engine, and warps that specialise.
cost: >-
  Nothing but the choice; a plan is built for each new shape, some ten milliseconds at first.
not_when: >-
  Nothing is pinned: recent versions of torch prefer cuDNN on Hopper by themselves. Shapes change all the
  time, heads are larger than 256, or the chip is older than Hopper, where flash is as good.
shows:
  - what: kernel family of the attention
    plain: pytorch_flash::flash_fwd_kernel
    tuned: cudnn_generated_fort_native_sdpa_sm90
  - what: tensor pipe active
    plain: about a third
    tuned: more than half
needs: {gpu: true, capability: 9.0, torch: "2.5"}
"""
# Only on a GPU: both backends are there alone.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    shape = 4, draw.size(gpu=8192, cpu=32), 16, 128  # as projections leave them
    q, k, v = (draw.normal(*shape, dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
    return q, k, v


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def tuned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Head by head: all scores at once would fill the device in double precision."""
    batch, heads, _, _ = q.shape
    out = torch.empty_like(q)
    with sdpa_kernel(SDPBackend.MATH):
        for sample in range(batch):
            for head in range(heads):
                at = sample, slice(head, head + 1)
                out[at] = F.scaled_dot_product_attention(q[at], k[at], v[at], is_causal=True)
    return out


def work(q: Tensor, k: Tensor, v: Tensor) -> dict[str, float | str]:
    batch, heads, length, size = q.shape
    return {"flops": 2.0 * batch * heads * length**2 * size, "bytes": 4 * q.nbytes, "unit": "matmul.bf16"}
