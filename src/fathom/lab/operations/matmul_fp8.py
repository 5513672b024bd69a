"""Multiply bf16 activations by weights in fp8.

    fathom lab run fp8-scaled

in_bf16 multiplies both as they are; fp8_scaled casts the activations with a Triton kernel.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

LARGEST = 448.0  # in e4m3
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    n = draw.size(gpu=8192, cpu=64)
    x, weight = draw.normal(n, n, dtype=torch.bfloat16), draw.normal(n, n, dtype=torch.bfloat16)
    scale = weight.abs().amax(dim=1).float() / LARGEST
    narrow = (weight.float() / scale.unsqueeze(1)).to(torch.float8_e4m3fn)
    return x, weight, narrow.view(torch.uint8), scale


def in_bf16(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    return x @ weight.t()


@triton.jit
def _cast(narrow, scales, x, columns, LARGEST: tl.constexpr, WIDTH: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / LARGEST
    tl.store(narrow + row * columns + at, (values / scale).to(tl.float8e4nv), mask=at < columns)
    tl.store(scales + row, scale)


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = x.shape
    narrow, scales = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty(rows, 1, dtype=torch.float32)
    width = triton.next_power_of_2(columns)
    _cast[(rows,)](narrow, scales, x, columns, LARGEST=LARGEST, WIDTH=width, num_warps=8)
    return narrow, scales


def fp8_scaled(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> Tensor:
    """title: Multiply in fp8 with a scale per row
    pair: {group: compute, plain: in_bf16, reference: in_bf16}
    saves: tensor-core time, and bytes of the operands
    idea: Hopper multiplies e4m3 at twice the rate of bf16. Its three bits of mantissa and range of 448
      require scales. One for each row of the left operand and each column of the right maps the largest value
      to the end of the range.
    cost: Weights are cast once, in advance. Casting activations reads them once, in a kernel that also finds
      the largest values; it is free if done by the kernel that makes them. The relative error is about 3e-2
      per operand, which averages out over the sum.
    not_when: The product is small or bound by the bandwidth of its result, or the accuracy does not suffice.
      Casting with eager operations took three times as long as the product in bf16 on an H200.
    shows:
      kernel families of the product: bf16 → e4m3, after one that casts
    tips: [compute.fp8, inference.fp8-inference]
    no_finding: whether fp8 is accurate enough is not in a recording.
    needs: {capability: 9.0, packages: [triton], torch: "2.5"}
    proof: {precision: fp8}"""
    # Only on a GPU: a processor has no products with a scale per row.
    mine, scales = _quantised(x)
    kept = narrow.view(torch.float8_e4m3fn).t()
    how = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return torch._scaled_mm(mine, kept, scale_a=scales, scale_b=scale.unsqueeze(0), **how)


def work(x: Tensor, weight: Tensor, narrow: Tensor, scale: Tensor) -> dict[str, float | str]:
    moved = 2 * x.nbytes + narrow.nbytes
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": moved, "unit": "matmul.fp8"}
