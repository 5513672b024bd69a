"""
title: Batches from pinned memory
saves: half of the link's bandwidth, and the host's wait for the copy
idea: >-
  The driver cannot read pageable memory by itself: it copies it in pieces through a pinned buffer, and the
  host waits meanwhile. Batches that are pinned are read at the link's full rate, and non_blocking=True lets
  the host go on.
cost: >-
  Page-locked memory for the batches under way, and a copy into it, which pin_memory=True leaves to a
  thread of the loader, beside the training; this pair has both forms of the batch at hand.
not_when: >-
  Batches are a few kilobytes (the copy's latency decides), the host has little memory, or the training
  thread would pin by itself in each step: that costs more than it brings.
shows:
  - what: rate of copies from host to device
    plain: about half of the link's
    tuned: near the link's
  - what: time of cudaMemcpyAsync on the host
    plain: as long as the copy
    tuned: some microseconds
findings: [input-pageable-copy]
needs: {gpu: true}
latency: included
cache: warm
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    batches = host.integers(0, 256, 4, draw.size(gpu=1 << 24, cpu=1 << 14), dtype=torch.uint8)
    pinned = batches.pin_memory() if draw.device == "cuda" else batches.clone()
    return batches, pinned, draw.normal(4)


def _scaled(there: list[Tensor], scales: Tensor) -> Tensor:
    return torch.stack([batch[::4096].to(scales.dtype) for batch in there]) * scales.unsqueeze(1)


def plain(batches: Tensor, pinned: Tensor, scales: Tensor) -> Tensor:
    return _scaled([batch.to(scales.device) for batch in batches], scales)


def tuned(batches: Tensor, pinned: Tensor, scales: Tensor) -> Tensor:
    return _scaled([batch.to(scales.device, non_blocking=True) for batch in pinned], scales)


def work(batches: Tensor, pinned: Tensor, scales: Tensor) -> dict[str, float]:
    return {"bytes": batches.nbytes}
