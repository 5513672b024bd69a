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

import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fathom.lab import Draw

WORKERS, BATCH, SAMPLES, EPOCHS = 2, 8, 64, 4


def inputs(seed: int, device: str | None = None) -> list[Tensor]:
    size = 1 << 19 if device is None else 1 << 14  # some milliseconds a sample, unless a test asks
    smooth = Draw(seed, "cpu").integers(0, 8, SAMPLES, size, dtype=torch.uint8).cumsum(1).to(torch.uint8)
    packed = [zlib.compress(row.tobytes(), 1) for row in smooth.numpy()]
    return [torch.frombuffer(bytearray(record), dtype=torch.uint8) for record in packed]


class _Records(Dataset[Tensor]):
    """Decompresses each sample, as decoding a picture does."""

    def __init__(self, records: list[Tensor]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Tensor:
        decoded = np.frombuffer(zlib.decompress(self.records[number].numpy().tobytes()), np.uint8)
        return torch.from_numpy(decoded[::8].astype(np.float32))


def _means(records: list[Tensor], **how: Any) -> Tensor:
    batches = DataLoader(_Records(records), batch_size=BATCH, **how)
    return torch.cat([batch.mean(dim=1) for _ in range(EPOCHS) for batch in batches])


def plain(records: list[Tensor]) -> Tensor:
    return _means(records)


def tuned(records: list[Tensor]) -> Tensor:
    return _means(records, num_workers=WORKERS, persistent_workers=True)
