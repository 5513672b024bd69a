"""
title: One batched product for many small ones
saves: launches, and multiprocessors that idle
idea: >-
  A product of 64 by 64 fills a few of 132 multiprocessors for a few microseconds, which is less than its
  launch takes. torch.bmm does all of them in one launch, side by side.
cost: >-
  The loop takes the number of products times a launch; the batched form one launch and the sum of the work
  over the whole chip.
not_when: >-
  The products are large enough to fill the chip, or of different shapes: grouped products take those.
shows:
  - what: kernel launches
    plain: one a product
    tuned: one
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: a few percent
    tuned: most of the chip
findings: [kernels-serial-small-products, host-launch-bound]
latency: included
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    count = draw.size(gpu=128, cpu=12)
    return draw.normal(count, 64, 64), draw.normal(count, 64, 64)


def plain(left: Tensor, right: Tensor) -> Tensor:
    return torch.stack([a @ b for a, b in zip(left, right, strict=True)])


def tuned(left: Tensor, right: Tensor) -> Tensor:
    return torch.bmm(left, right)


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * left.numel() * right.shape[-1], "bytes": 3 * left.nbytes, "unit": "vector.fp32"}
