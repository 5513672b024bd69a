"""
title: Transposing through shared memory
saves: HBM bandwidth, in sectors written
idea: >-
  A transposition reads along one dimension and writes along the other, so one of both is strided whatever
  the order. A tile that is turned in shared memory makes both coalesced.
cost: >-
  Bytes are read and written once more in shared memory, at many times the bandwidth of HBM, with one
  barrier a tile.
not_when: >-
  The consumer can read the strided layout itself (a GEMM takes either), or the matrix fits into L2, where
  sectors that were written in part are merged before they go out.
shows:
  - what: l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum over l1tex__t_requests_pipe_lsu_mem_global_op_st.sum
    plain: 32 sectors a request
    tuned: 4 sectors a request
findings: [kernels-uncoalesced, kernels-transposes]
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
    return _transposed("through_shared", x)


def reference(x: Tensor) -> Tensor:
    return x.t().contiguous()


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 8 * x.numel()}
