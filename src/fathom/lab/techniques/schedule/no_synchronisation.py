"""
title: Statistics that stay on the device
saves: idle time of the device while the host waits
idea: >-
  `.item()` on every layer's norm makes the host wait until the device has caught up, and then the device
  waits until the host has issued more. Kept as tensors and stacked, they are read once at the end, or
  never.
cost: >-
  Each wait costs the launch latency of what follows, and the lead of the host with it.
not_when: >-
  The value decides what is launched next, or the host is so far ahead that memory runs out.
shows:
  - what: ledger, idle by synchronisation
    plain: once a layer
    tuned: none
findings: [host-sync-item]
latency: included
cache: warm
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

LAYERS = 32


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.normal(LAYERS, draw.size(gpu=1 << 18, cpu=512))


def plain(gradients: Tensor) -> Tensor:
    squares = [float((gradient * gradient).sum()) for gradient in gradients]
    return gradients * (sum(squares) ** -0.5)


def tuned(gradients: Tensor) -> Tensor:
    squares = [(gradient * gradient).sum() for gradient in gradients]
    return gradients * torch.stack(squares).sum().rsqrt()


def work(gradients: Tensor) -> dict[str, float]:
    return {"bytes": 3 * gradients.nbytes}
