"""
title: Swizzling against bank conflicts
saves: shared-memory bandwidth, in passes
idea: >-
  As padding, but without a byte more: the column of an element is exchanged by exclusive or with its row,
  which is a permutation within each row and puts every column into 32 different banks. Wide accesses stay
  aligned.
cost: >-
  One exclusive or an access; passes fall from 32 to 1 for each read of a column.
not_when: >-
  Padding costs nothing here and is easier to read. Where several tiles of a pipeline fill shared memory, or
  a tensor core reads them by descriptor, swizzling is the only way.
shows:
  - what: >-
      l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum over
      l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    plain: 31 of 32
    tuned: about 0
findings: [kernels-bank-conflicts]
"""

from __future__ import annotations

from torch import Tensor

from fathom.lab import Draw, Source

TILE, BLOCK = 64, (32, 8)
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    n = draw.size(gpu=11264, cpu=128)
    return draw.normal(n, n)


def _transposed(kernel: str, x: Tensor) -> Tensor:
    n = len(x)
    out = x.new_empty(n, n)
    kernels.launch(kernel, (n // TILE, n // TILE), BLOCK, out, x, n)
    return out


def plain(x: Tensor) -> Tensor:
    return _transposed("straight", x)


def tuned(x: Tensor) -> Tensor:
    return _transposed("swizzled", x)


def reference(x: Tensor) -> Tensor:
    return x.t().contiguous()


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 8 * x.numel()}
