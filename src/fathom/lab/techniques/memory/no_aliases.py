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
    plain: two for each multiplication
    tuned: about one
  - what: smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active
    plain: the largest stall
    tuned: smaller
reduction: 4
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, EACH, TAPS = 256, 16, 4
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    return draw.normal(draw.size(gpu=1 << 27, cpu=1 << 13) + TAPS - 1), draw.normal(TAPS)


def _filtered(kernel: str, x: Tensor, taps: Tensor) -> Tensor:
    n = len(x) - TAPS + 1
    out = x.new_empty(n)
    kernels.launch(kernel, n // (THREADS * EACH), THREADS, out, x, taps, EACH)
    return out


def plain(x: Tensor, taps: Tensor) -> Tensor:
    return _filtered("may_alias", x, taps)


def tuned(x: Tensor, taps: Tensor) -> Tensor:
    return _filtered("are_apart", x, taps)


def reference(x: Tensor, taps: Tensor) -> Tensor:
    n = len(x) - TAPS + 1
    return torch.stack([taps[tap] * x[tap : tap + n] for tap in range(TAPS)]).sum(dim=0)


def work(x: Tensor, taps: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
