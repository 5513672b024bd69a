"""
title: Samples made by worker processes
saves: time in which the step waits for its batch
idea: >-
  A loader without workers makes each batch in the training process, between two steps. Worker processes
  make the next ones meanwhile, several side by side.
cost: >-
  Start of the processes (kept over epochs by persistent_workers), and a copy of each batch through shared
  memory. With w workers a batch takes about a w-th of its time, as long as there are cores.
not_when: >-
  Samples are made in microseconds (sending them costs more), or the machine has no cores to spare.
shows:
  - what: ledger, idle by input
    plain: the time to make a batch
    tuned: that, less what the workers overlap
findings: [input-too-few-workers]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fathom.lab import Draw

WORKERS, BATCH, SAMPLES = 2, 8, 64


def inputs(seed: int, device: str | None = None) -> Tensor:
    size = Draw(seed, device).size(gpu=512, cpu=64)
    return Draw(seed, "cpu").uniform(SAMPLES, size, size)


class _Pictures(Dataset[Tensor]):
    """Costs some milliseconds a sample, as decoding and augmenting does."""

    def __init__(self, pictures: Tensor) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, number: int) -> Tensor:
        picture = self.pictures[number]
        for _ in range(8):
            picture = torch.fft.irfft2(torch.fft.rfft2(picture) * 0.999, s=picture.shape)
        return picture


def _means(pictures: Tensor, **how: Any) -> Tensor:
    batches = DataLoader(_Pictures(pictures), batch_size=BATCH, **how)
    return torch.cat([batch.mean(dim=(1, 2)) for batch in batches])


def plain(pictures: Tensor) -> Tensor:
    return _means(pictures)


def tuned(pictures: Tensor) -> Tensor:
    return _means(pictures, num_workers=WORKERS)
