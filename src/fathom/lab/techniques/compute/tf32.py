"""
title: float32 products on tensor cores
saves: time of the arithmetic units
idea: >-
  TF32 takes float32 operands, rounds them to ten bits of mantissa on the way into the tensor cores, and
  adds up in float32. One setting, and products of float32 matrices are several times as quick.
cost: >-
  A relative error of about 5e-4 an operand in place of 6e-8; range, storage and sums stay those of float32.
not_when: >-
  The numbers need float32 (solvers, statistics, differences of nearly equal values), or bf16 would do: that
  halves the bytes too.
shows:
  - what: sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
    plain: about 0
    tuned: most of the product
  - what: sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed
    plain: near the peak
    tuned: about 0
findings: [kernels-tf32-off, kernels-tensor-cores-idle]
needs: {gpu: true, capability: 8.0}
precision: tf32
"""
# Only on a GPU: the processor has no TF32.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n = draw.size(gpu=4096, cpu=64)
    return draw.normal(n, n), draw.normal(n, n)


@contextmanager
def _tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def plain(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def tuned(left: Tensor, right: Tensor) -> Tensor:
    with _tf32():
        return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": 3 * left.nbytes, "unit": "matmul.tf32"}
