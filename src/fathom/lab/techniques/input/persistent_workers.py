"""
title: Workers that outlive the epoch
saves: the start of worker processes at every epoch
idea: >-
  By default a loader ends its workers after an epoch and starts new ones for the next: processes are
  forked, data sets are sent to them, files are opened again, queues fill from nothing. With
  persistent_workers the same processes go on, their queues full.
cost: >-
  The workers' memory between epochs, when nothing asks for it. Starting costs some 10 ms a worker where
  processes are forked, seconds where they are spawned and import the program again.
not_when: >-
  Epochs are long, or the data set is changed by the training process between epochs: workers keep the copy
  that they were started with.
shows:
  - what: new worker processes at the start of an epoch
    plain: all of them
    tuned: none
  - what: steps of kind "epoch start", against others
    plain: many times as long
    tuned: the same
findings: [input-worker-restart]
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fathom.lab import Draw

WORKERS, BATCH, EPOCHS = 2, 16, 4


def inputs(seed: int, device: str | None = None) -> Tensor:
    return Draw(seed, "cpu").normal(128, 64)


class _Samples(Dataset[Tensor]):
    """Short samples, sorted: some work for the worker."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Tensor:
        return self.rows[number].sort().values


def _sums(rows: Tensor, persistent: bool) -> Tensor:
    loader = DataLoader(_Samples(rows), batch_size=BATCH, num_workers=WORKERS, persistent_workers=persistent)
    return torch.stack([torch.cat([batch.cumsum(1) for batch in loader]) for _ in range(EPOCHS)]).sum(0)


def plain(rows: Tensor) -> Tensor:
    return _sums(rows, persistent=False)


def tuned(rows: Tensor) -> Tensor:
    return _sums(rows, persistent=True)
