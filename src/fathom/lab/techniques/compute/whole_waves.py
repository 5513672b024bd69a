"""
title: One wave of blocks that stride over the work
saves: multiprocessors that idle in the last wave
idea: >-
  Blocks run in waves of as many as the chip holds. One block more than a wave takes as long as a second
  wave, in which nearly everything idles. A grid of one wave whose blocks stride over the elements has no
  such tail.
cost: >-
  A loop and its index; the split is fixed, so blocks with more to do are not helped by others.
not_when: >-
  There are many waves (the tail is one of them at most), or blocks differ in length: then small blocks that
  the hardware spreads are better.
shows:
  - what: launch__waves_per_multiprocessor
    plain: a little above a whole number
    tuned: one
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: about half
    tuned: most of the time
findings: [kernels-wave-quantisation]
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

THREADS, PART = 1024, 8192
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    blocks = 2 * kernels.multiprocessors() + 1 if draw.device == "cuda" else 5
    return draw.uniform(blocks * PART)


def plain(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch("a_block_a_part", -(-len(x) // PART), THREADS, out, x, len(x), PART)
    return out


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch("one_wave", 2 * kernels.multiprocessors(), THREADS, out, x, len(x))
    return out


def reference(x: Tensor) -> Tensor:
    value = x
    for _ in range(256):
        value = 0.5 * value + 0.125 * value * value
    return x + value


def work(x: Tensor) -> dict[str, float | str]:
    return {"flops": 4.0 * 256 * len(x), "bytes": 2 * x.nbytes, "unit": "vector.fp32"}
