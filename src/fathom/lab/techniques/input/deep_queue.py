"""
title: A queue deep enough for the slow samples
saves: time in which the step waits for a late batch
idea: >-
  Workers hold two batches each in advance. Where a few batches take many times as long as the others (long
  videos, files from slow storage), these run dry while one worker is busy, because batches come in order.
  A larger prefetch_factor lets the others work ahead meanwhile.
cost: >-
  Memory for prefetch_factor times workers batches. No more than the mean rate of the workers can be had:
  a queue only evens out.
not_when: >-
  Every batch takes about the same time, or the workers are too slow on average: then more workers, or less
  work a sample. Batches that are large make deep queues dear.
shows:
  - what: waits of the input table
    plain: a long one after each slow batch
    tuned: short ones, if any
"""

from __future__ import annotations

import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fathom.lab import Draw

WORKERS, BATCHES, EVERY = 2, 44, 11  # odd: the slow ones come to both workers
STEP_S, QUICK_S, SLOW_S = 2e-3, 1e-3, 24e-3  # a step; a batch of a worker: usually, and one in EVERY


def inputs(seed: int, device: str | None = None) -> Tensor:
    return Draw(seed, "cpu").normal(BATCHES, 64, 64)


class _Batches(Dataset[Tensor]):
    """Batches that wait for storage, some of them long."""

    def __init__(self, batches: Tensor) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Tensor:
        time.sleep(SLOW_S if number % EVERY == EVERY - 1 else QUICK_S)
        return self.batches[number]


def _trained(batches: Tensor, ahead: int) -> Tensor:
    loader = DataLoader(_Batches(batches), batch_size=None, num_workers=WORKERS, prefetch_factor=ahead)
    state = torch.zeros(64, 64)
    for batch in loader:
        time.sleep(STEP_S)  # the device's step
        state = state + batch
    return state


def plain(batches: Tensor) -> Tensor:
    return _trained(batches, ahead=2)


def tuned(batches: Tensor) -> Tensor:
    return _trained(batches, ahead=16)
