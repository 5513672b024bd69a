"""
title: Pointers that are told to be apart
saves: loads, and the wait for each of them
idea: >-
  A store through one pointer may change what another points to, so the compiler loads everything again
  after it, and starts no load before it. `__restrict__` on all of them, `const` where nothing is written,
  lets it keep values in registers, move loads ahead of stores, and use the read-only path.
cost: >-
  Nothing but the promise, and registers for what is kept. A broken promise gives wrong results in silence.
not_when: >-
  A thread stores once, at its end: then nothing is loaded after a store. Or the kernel does overlap its
  arguments.
shows:
  - what: smsp__inst_executed_op_global_ld.sum
    plain: five for each result
    tuned: little more than one
  - what: smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active
    plain: the largest stall
    tuned: smaller
reduction: 4
"""

from __future__ import annotations

from torch import Tensor

from fathom.lab import Draw, Source

THREADS, EACH, TERMS = 256, 16, 4
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=1 << 27, cpu=1 << 13)), draw.normal(TERMS)


def _evaluated(kernel: str, x: Tensor, factors: Tensor) -> Tensor:
    out = x.new_empty(len(x))
    kernels.launch(kernel, len(x) // (THREADS * EACH), THREADS, out, x, factors, EACH)
    return out


def plain(x: Tensor, factors: Tensor) -> Tensor:
    return _evaluated("may_alias", x, factors)


def tuned(x: Tensor, factors: Tensor) -> Tensor:
    return _evaluated("are_apart", x, factors)


def reference(x: Tensor, factors: Tensor) -> Tensor:
    total = x * 0
    for factor in factors.flip(0):
        total = total * x + factor
    return total


def work(x: Tensor, factors: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
