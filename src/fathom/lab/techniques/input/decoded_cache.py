"""
title: Records decoded once
saves: host time of decompressing at every epoch
idea: >-
  Compressed records that fit into memory once decoded need to be decompressed only in the first epoch.
  Later ones take the arrays as they are.
cost: >-
  Memory for the decoded set, on every process that holds it (share it, or let each rank hold its part).
not_when: >-
  The decoded set exceeds memory (then decode to smaller pictures, once, on disk), or augmentation has to
  start from the compressed form.
shows:
  - what: input table, time to fetch a sample
    plain: decompression, in every epoch
    tuned: decompression in the first epoch alone
findings: [input-slow-decode]
"""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from fathom.lab import Draw

EPOCHS, SAMPLES, SIZE = 4, 24, 1 << 15


def inputs(seed: int, device: str | None = None) -> list[Tensor]:
    draw = Draw(seed, "cpu")
    smooth = draw.integers(0, 8, SAMPLES, SIZE, dtype=torch.uint8).cumsum(1).to(torch.uint8)
    packed = [zlib.compress(row.tobytes(), 6) for row in smooth.numpy()]
    return [torch.frombuffer(bytearray(record), dtype=torch.uint8) for record in packed]


def _decoded(record: Tensor) -> np.ndarray:
    return np.frombuffer(zlib.decompress(record.numpy().tobytes()), np.uint8)


def _epoch(samples: list[np.ndarray], epoch: int) -> Tensor:
    return torch.tensor([float(sample[epoch::EPOCHS].mean()) for sample in samples])


def plain(records: list[Tensor]) -> Tensor:
    return torch.stack([_epoch([_decoded(record) for record in records], epoch) for epoch in range(EPOCHS)])


def tuned(records: list[Tensor]) -> Tensor:
    samples = [_decoded(record) for record in records]
    return torch.stack([_epoch(samples, epoch) for epoch in range(EPOCHS)])
