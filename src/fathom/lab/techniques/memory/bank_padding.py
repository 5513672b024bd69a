"""
title: Padding against bank conflicts
saves: shared-memory bandwidth, in passes
idea: >-
  Shared memory has 32 banks of 4 bytes. A column of a tile whose rows are 64 floats long lies in one bank,
  and 32 lanes that read it are served one after the other. One more float a row puts it into 32 banks.
cost: >-
  Passes fall from 32 to 1 for each read of a column; the tile takes a sixty-fourth more shared memory.
not_when: >-
  Shared memory limits occupancy and the padding is what tips it (swizzle then), rows must stay aligned to
  16 bytes for wide accesses, or a tensor memory copy fills the tile: it swizzles by itself.
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
    return _transposed("pitch_64", x)


def tuned(x: Tensor) -> Tensor:
    return _transposed("pitch_65", x)


def reference(x: Tensor) -> Tensor:
    return x.t().contiguous()


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 8 * x.numel()}
