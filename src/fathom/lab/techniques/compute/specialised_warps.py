"""
title: A warp that copies, and warps that multiply
saves: issue slots and barriers of the warps that compute
idea: >-
  Where every warp copies and computes, each step costs all of them addresses, copies and a barrier at which
  the slowest is waited for. One warp that does nothing but ask the accelerator for the next steps leaves
  the others with arithmetic; a pair of barriers in shared memory for each stage lets every warp run as far
  ahead or behind as there are stages.
cost: >-
  Warps that add nothing to the sums; setmaxnreg moves most of their registers to those that do. 32 KB of
  stages, in either form.
not_when: >-
  The plain pipeline already keeps the arithmetic busy, as it nearly does here: products in float32 gain a
  few percent at most. Where tensor cores make a step short, or loads are irregular, it decides: it is how
  cuBLAS and FlashAttention 3 are built on this chip. In Triton 3.6 warp_specialize is made for Blackwell.
shows:
  - what: smsp__inst_executed.sum
    plain: copies and their addresses in every warp
    tuned: fewer
  - what: smsp__average_warps_issue_stalled_barrier_per_issue_active
    plain: some
    tuned: none
no_gain: >-
  H200: 0.80 times as fast in float32. The plain pipeline's copies already hide behind its arithmetic (67 % of
  the vector ceiling), and warps that only copy leave fewer places to those that compute (53 %).
needs: {capability: 9.0}
"""

from __future__ import annotations

from torch import Tensor

from fathom.lab import Draw, Source

EDGE, THREADS = 128, 256
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, depth = draw.size(gpu=4096, cpu=256), draw.size(gpu=4096, cpu=72)
    return draw.normal(depth, n), draw.normal(depth, n)


def _product(kernel: str, threads: int, left: Tensor, right: Tensor) -> Tensor:
    depth, n = left.shape
    out = left.new_empty(n, n)
    kernels.launch(kernel, (n // EDGE, n // EDGE), threads, out, left, right, n, depth)
    return out


def plain(left: Tensor, right: Tensor) -> Tensor:
    return _product("all_alike", THREADS, left, right)


def tuned(left: Tensor, right: Tensor) -> Tensor:
    return _product("specialised", THREADS + 128, left, right)


def reference(left: Tensor, right: Tensor) -> Tensor:
    """As the gradient of a weight is made: the sum runs along the first dimension of both."""
    return left.t() @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    n = left.shape[1]
    size = left.nbytes + right.nbytes + 4 * n * n
    return {"flops": 2.0 * left.numel() * n, "bytes": size, "unit": "vector.fp32"}
