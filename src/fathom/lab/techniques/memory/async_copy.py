"""
title: Copies into shared memory that run ahead
saves: time in which a block waits for its loads
idea: >-
  A tile that is loaded and then used keeps a block waiting for HBM or L2 once a tile. cp.async starts the
  copy of the next tile past the registers, and the block multiplies the present one meanwhile.
cost: >-
  Twice the shared memory for two stages. The time of a tile becomes the longer of copy and arithmetic, not
  the sum. Here neither HBM nor FMA is that bound: with 4 x 4 sums a thread, 80 loads from shared memory feed
  256 multiplications of a warp, one a cycle against four, so more than 80 % of vector.fp32 is out of reach
  (larger tiles in registers lift that: see register-tiling).
not_when: >-
  Enough other blocks on the multiprocessor fill the wait, copies of less than 16 bytes are needed, or what
  comes in has to be converted on the way. On Hopper the tensor memory accelerator takes the instructions
  away too.
shows:
  - what: smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active
    plain: the largest stall
    tuned: small
needs: {capability: 8.0}
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
    kernels.launch("in_turn", (n // 64, n // 64), (16, 16), out, left, right, n)
    return out


def tuned(left: Tensor, right: Tensor) -> Tensor:
    n, out = len(left), left.new_empty(left.shape)
    kernels.launch("ahead", (n // 64, n // 64), (16, 16), out, left, right, n)
    return out


def reference(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(left) ** 3, "bytes": 3 * left.nbytes, "unit": "vector.fp32"}
