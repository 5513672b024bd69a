"""
title: One cache of decoded records for all workers
saves: host time of decoding what another worker decoded before
idea: >-
  Each worker that caches what it decoded keeps a set of its own, and a sample comes to another worker in the
  next epoch: with w workers it is decoded w times before all have it, and held w times. One array in
  shared memory, with a flag a sample, is filled by whoever comes first.
cost: >-
  The decoded set once, in /dev/shm (containers often limit it: --shm-size). A sample that two workers
  decode at the same moment is written twice, with the same bytes.
not_when: >-
  The decoded set exceeds memory, decoding costs no more than copying, or the workers always get the same
  samples.
shows:
  - what: input table, time to fetch a sample after the first epoch
    plain: decodes again in every second case with two workers, for some epochs
    tuned: a copy from memory
  - what: memory of the workers
    plain: grows to the decoded set in each
    tuned: the decoded set once
findings: [input-slow-decode]
"""

from __future__ import annotations

import bz2

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fathom.lab import Draw

WORKERS, BATCH, SAMPLES, EPOCHS = 2, 4, 36, 6


def inputs(seed: int, device: str | None = None) -> list[Tensor]:
    size = 1 << 16 if device is None else 1 << 13
    smooth = Draw(seed, "cpu").integers(0, 8, SAMPLES, size, dtype=torch.uint8).cumsum(1).to(torch.uint8)
    packed = [bz2.compress(row.tobytes()) for row in smooth.numpy()]
    return [torch.frombuffer(bytearray(record), dtype=torch.uint8) for record in packed]


def _decoded(record: Tensor) -> Tensor:
    return torch.from_numpy(np.frombuffer(bz2.decompress(record.numpy().tobytes()), np.uint8).copy())


class _Own(Dataset[Tensor]):
    """A cache in the memory of each worker."""

    def __init__(self, records: list[Tensor]) -> None:
        self.records = records
        self.known: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Tensor:
        if number not in self.known:
            self.known[number] = _decoded(self.records[number])
        return self.known[number][::16].float()


class _Shared(_Own):
    """A cache that all workers see."""

    def __init__(self, records: list[Tensor]) -> None:
        super().__init__(records)
        size = len(_decoded(records[0]))
        self.there = torch.zeros(len(records), dtype=torch.bool).share_memory_()
        self.all = torch.empty(len(records), size, dtype=torch.uint8).share_memory_()

    def __getitem__(self, number: int) -> Tensor:
        if not self.there[number]:
            self.all[number] = _decoded(self.records[number])
            self.there[number] = True
        return self.all[number, ::16].float()


def _means(records: Dataset[Tensor]) -> Tensor:
    """Of each sample over all epochs, in each of which it comes to another worker."""
    orders = [torch.arange(SAMPLES).roll(epoch * BATCH).tolist() for epoch in range(EPOCHS)]
    sampler = [order[first : first + BATCH] for order in orders for first in range(0, SAMPLES, BATCH)]
    loader = DataLoader(records, batch_sampler=sampler, num_workers=WORKERS)
    return torch.cat([batch.mean(dim=1) for batch in loader])


def plain(records: list[Tensor]) -> Tensor:
    return _means(_Own(records))


def tuned(records: list[Tensor]) -> Tensor:
    return _means(_Shared(records))
