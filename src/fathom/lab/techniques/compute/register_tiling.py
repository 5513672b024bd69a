"""
title: Several results a thread
saves: shared-memory bandwidth
idea: >-
  A thread with one result reads two values from shared memory for each multiplication. With 4 by 4 results
  it reads eight values for sixteen multiplications, and holds them in registers meanwhile.
cost: >-
  Reads fall by half the edge of the thread's tile; it takes sixteen registers for sums and eight for
  operands.
not_when: >-
  Tensor cores can do the product (they hold far larger tiles), or the result is so small that fewer threads
  leave the chip idle.
shows:
  - what: l1tex__data_pipe_lsu_wavefronts_mem_shared.sum over FMA instructions
    plain: about two
    tuned: about a half
  - what: sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed
    plain: a quarter
    tuned: above one half
"""

from __future__ import annotations

from torch import Tensor

from fathom.lab import Draw, Source

kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n = draw.size(gpu=2048, cpu=128)
    return draw.normal(n, n), draw.normal(n, n)


def plain(left: Tensor, right: Tensor) -> Tensor:
    n, out = len(left), left.new_empty(left.shape)
    kernels.launch("tiled", (n // 32, n // 32), (32, 32), out, left, right, n)
    return out


def tuned(left: Tensor, right: Tensor) -> Tensor:
    n, out = len(left), left.new_empty(left.shape)
    kernels.launch("by_registers", (n // 64, n // 64), (16, 16), out, left, right, n)
    return out


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(left) ** 3, "bytes": 3 * left.nbytes, "unit": "vector.fp32"}
