"""
title: A product in fp8 with a scale a row
saves: time of the tensor cores, and bytes of the operands
idea: >-
  Hopper multiplies e4m3 at twice the rate of bf16. Its three bits of mantissa and range of 448 ask for
  scales: one for each row of the left operand and each column of the right puts the largest value at the
  end of the range.
cost: >-
  Finding the largest values and casting reads both operands once; done in the kernel that makes them, it is
  free. A relative error of about 3e-2 an operand, which averages out over the sum.
not_when: >-
  The product is small or bound by bandwidth of its result, the casts have to be passes of their own (they
  are here, and count), or the accuracy does not allow it.
shows:
  - what: kernel families of the product
    plain: bf16
    tuned: e4m3, after two that cast
needs: {gpu: true, capability: 9.0, torch: "2.5"}
precision: fp8
"""
# Only on a GPU: scales a row are not there on a processor.

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

LARGEST = 448.0  # of e4m3


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n = draw.size(gpu=8192, cpu=64)
    return draw.normal(n, n, dtype=torch.bfloat16), draw.normal(n, n, dtype=torch.bfloat16)


def plain(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.t()


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def tuned(x: Tensor, weight: Tensor) -> Tensor:
    (a, of_a), (b, of_b) = _quantised(x), _quantised(weight)
    return torch._scaled_mm(
        a, b.t(), scale_a=of_a, scale_b=of_b.t(), out_dtype=torch.bfloat16, use_fast_accum=False
    )


def work(x: Tensor, weight: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": 3 * x.nbytes, "unit": "matmul.fp8"}
