"""
title: Collating arrays, not lists of numbers
saves: host time between two batches
idea: >-
  torch.tensor of nested Python lists looks at every number as an object. Samples that stay arrays are
  copied as blocks of bytes by one stack.
cost: >-
  Memory traffic alone in place of about 50 ns a number.
not_when: >-
  Samples are a few numbers each, or come as Python objects and have to be converted once anyway: convert
  when they are stored.
shows:
  - what: input table, time to collate
    plain: grows with the numbers, at some 20 million a second
    tuned: near the memory's bandwidth
findings: [input-collate]
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
    return torch.tensor([sample.tolist() for sample in samples], dtype=torch.float32)


def tuned(samples: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(samples))


def reference(samples: list[np.ndarray]) -> Tensor:
    return torch.stack([torch.from_numpy(sample).double() for sample in samples])
