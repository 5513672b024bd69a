"""
title: Registers for the block that is launched
saves: traffic of spilled registers
idea: >-
  A multiprocessor has 65,536 registers, so a kernel that may be launched with blocks of 1,024 threads gets
  64 a thread; what doesn't fit goes to local memory, which is to say to L1, L2 and HBM. A bound of 128, the
  block that it is launched with, lets the compiler keep all 64 values of a picture block where they are
  used.
cost: >-
  Fewer warps at a time: with 80 registers 24 in place of 32. Each has 64 loads in flight, which is
  more than enough.
not_when: >-
  The kernel fits anyway, or many warps with few registers hide latency that a few cannot. A second number
  in the bounds, the blocks that shall fit on a multiprocessor, drives the other way.
shows:
  - what: smsp__inst_executed_op_local_ld.sum + smsp__inst_executed_op_local_st.sum
    plain: many
    tuned: none
  - what: launch__registers_per_thread
    plain: "64"
    tuned: more
findings: [kernels-register-spills]
reduction: 64
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, SIDE, LANES = 128, 8, 32
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=3 << 14, cpu=9), SIDE, SIDE, LANES)


def _transformed(kernel: str, x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), len(x) * LANES
    kernels.launch(kernel, -(-n // THREADS), THREADS, out, x, n)
    return out


def plain(x: Tensor) -> Tensor:
    return _transformed("for_any_block", x)


def tuned(x: Tensor) -> Tensor:
    return _transformed("for_its_block", x)


def reference(x: Tensor) -> Tensor:
    wave = torch.arange(SIDE, dtype=torch.float64, device=x.device)
    basis = torch.cos((2 * wave[None, :] + 1) * wave[:, None] * math.pi / (2 * SIDE)) / 2
    basis[0] /= math.sqrt(2)
    return torch.einsum("ai,gijn,bj->gabn", basis, x.double(), basis)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
