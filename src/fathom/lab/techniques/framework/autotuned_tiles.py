"""
title: Tiles of a Triton kernel chosen by trying
saves: time lost to tiles that don't suit the shape
idea: >-
  Tiles that are best for a large square product multiply 128 rows where there are 16, and hold accumulators
  for those that are not there; with few columns they leave most multiprocessors idle besides. Which sizes,
  warps and stages are best depends on shape and chip; triton.autotune tries a list for each new shape, and
  remembers.
cost: >-
  Each candidate is compiled and run for some milliseconds once a shape and process (cache_results keeps the
  choice on disk). Here 16 rows meet the 131,072 words of an output layer, and what is gained is what the
  weights' reading leaves. Of 8,192 columns the best tiles are 1.9 times as fast as the square ones on an
  H200, but at 63 % of the ceiling: a kernel that only reads these 128 MiB reaches 73 %.
not_when: >-
  Shapes change all the time, as do the lengths of sequences: make the key coarser, or choose by a rule.
  Nothing is gained where the fixed sizes were tuned for this shape already.
shows:
  - what: operations of the tensor cores
    plain: eight times those asked for
    tuned: those asked for
  - what: dram throughput of the weights' reading
    plain: below the ceiling
    tuned: nearer to it
findings: [kernels-low-occupancy, numbers-tile-size]
needs: {packages: [triton]}
cache: cold
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

SQUARE = triton.Config({"M": 128, "N": 128, "K": 64}, num_warps=8, num_stages=3)
SIZES = [(16, 32, 128), (16, 64, 128), (16, 64, 256), (16, 128, 128), (32, 64, 128), (64, 64, 64)]
NARROW = [
    triton.Config({"M": m, "N": n, "K": k}, num_warps=4, num_stages=stages)
    for m, n, k in SIZES
    for stages in (3, 5)
]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, k = draw.size(gpu=131072, cpu=128), draw.size(gpu=8192, cpu=128)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    return draw.normal(16, k, dtype=dtype), draw.normal(n, k, dtype=dtype, scale=k**-0.5)


@triton.jit
def _product(out, x, weight, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    there, total = rows[:, None] < m, tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        depth = start + tl.arange(0, K)
        deep = depth < k
        a = tl.load(x + rows[:, None] * k + depth[None, :], mask=there & deep[None, :], other=0.0)
        b = tl.load(weight + cols[None, :] * k + depth[:, None], mask=deep[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out + rows[:, None] * n + cols[None, :], total, mask=there)  # n is a multiple of N


# Trying takes a device; one candidate is taken as it is.
_fixed = triton.autotune(configs=[SQUARE], key=["m", "n", "k"])(_product)
_tried = triton.autotune(configs=NARROW if torch.cuda.is_available() else NARROW[:1], key=["m", "n", "k"])(
    _product
)


def _run(kernel: Any, x: Tensor, weight: Tensor) -> Tensor:
    (m, k), n = x.shape, len(weight)
    out = x.new_empty(m, n)
    kernel[lambda at: (triton.cdiv(m, at["M"]), n // at["N"])](out, x, weight, m, n, k)
    return out


def plain(x: Tensor, weight: Tensor) -> Tensor:
    return _run(_fixed, x, weight)


def tuned(x: Tensor, weight: Tensor) -> Tensor:
    return _run(_tried, x, weight)


def reference(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.t()


def work(x: Tensor, weight: Tensor) -> dict[str, float | str]:
    unit = "matmul.bf16" if x.dtype == torch.bfloat16 else "vector.fp32"
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": weight.nbytes, "unit": unit}
