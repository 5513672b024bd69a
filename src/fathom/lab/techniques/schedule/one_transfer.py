"""
title: Many small values in one transfer
saves: calls of the host, and the latency of each copy
idea: >-
  A copy of a few bytes takes as long as its latency, some microseconds, and a call of the host. Lengths,
  positions and flags that every step needs are packed into one tensor, sent once, and taken apart on the
  device as views.
cost: >-
  Packing on the host, which copies the bytes once more.
not_when: >-
  The tensors are large: then bandwidth is the bound, and packing only copies.
shows:
  - what: copies from host to device
    plain: one a tensor
    tuned: one
findings: [host-launch-bound, host-sync-copy]
latency: included
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

COUNT, LENGTH = 64, 32


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    return Draw(seed, "cpu").normal(COUNT, LENGTH), draw.normal(LENGTH)


def _used(parts: list[Tensor], weight: Tensor) -> Tensor:
    return torch.stack(parts) @ weight


def plain(values: Tensor, weight: Tensor) -> Tensor:
    return _used([part.clone().to(weight.device) for part in values], weight)


def tuned(values: Tensor, weight: Tensor) -> Tensor:
    return _used(list(values.clone().to(weight.device).unbind()), weight)
