"""
title: Collating arrays as blocks, not number by number
saves: host time between two batches
idea: >-
  torch.tensor of a list of arrays takes them for nested sequences, and makes an object of every number. It
  warns of that once, in a worker whose log nobody reads. One stack copies the arrays as blocks of bytes.
cost: >-
  Memory traffic alone in place of some hundred nanoseconds a number.
not_when: >-
  Samples are a few numbers each, or already tensors, which the loader's own collation stacks.
shows:
  - what: input table, time to collate
    plain: grows with the numbers, at a few million a second
    tuned: near the memory's bandwidth
findings: [input-collate, input-sample-by-sample]
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fathom.lab import Draw

SAMPLES, SIZE = 64, 4096


def inputs(seed: int, device: str | None = None) -> list[np.ndarray]:
    return list(Draw(seed, "cpu").normal(SAMPLES, SIZE).numpy())


def plain(samples: list[np.ndarray]) -> Tensor:
    return torch.tensor(samples)


def tuned(samples: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(samples))


def reference(samples: list[np.ndarray]) -> Tensor:
    return torch.stack([torch.from_numpy(sample).double() for sample in samples])
