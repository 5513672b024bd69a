"""
title: Transforming the batch, not its samples
saves: host time of the transform
idea: >-
  Normalising, cropping and casting one sample at a time pays Python and the dispatcher for each. Collated
  first, the whole batch is transformed by the same few operations, on the device if it is there already.
cost: >-
  The raw batch is held once. What differs from sample to sample stays a copy of bytes each; the rest is one
  call.
not_when: >-
  Samples differ in shape until they are cropped, workers have time to spare, or several threads share busy
  cores: a large operation waits for the slowest of its threads, which small ones don't start (seen: 0.4
  times as fast on two busy cores, 2.2 times with one thread, as loader workers have).
shows:
  - what: input table, time of the transform
    plain: grows with the samples
    tuned: hardly does
no_gain: >-
  a host of an H200 with all 16 cores busy: 0.12 times as fast, for the same reason.
findings: [input-slow-transform, input-cpu-preprocessing]
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 28


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, "cpu")
    pictures = draw.integers(0, 256, 256, 3, 32, 32, dtype=torch.uint8)
    return pictures, draw.integers(0, 32 - CROP + 1, 256, 2), draw.integers(0, 2, 256).bool()


def plain(pictures: Tensor, corners: Tensor, flips: Tensor) -> Tensor:
    mean, deviation = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(DEVIATION).view(3, 1, 1)
    made = []
    for picture, (top, left), flip in zip(pictures, corners.tolist(), flips.tolist(), strict=True):
        cut = picture[:, top : top + CROP, left : left + CROP].float() / 255
        cut = cut.flip(-1) if flip else cut
        made.append((cut - mean) / deviation)
    return torch.stack(made)


def tuned(pictures: Tensor, corners: Tensor, flips: Tensor) -> Tensor:
    mean, deviation = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(DEVIATION).view(1, 3, 1, 1)
    cut = torch.empty(len(pictures), 3, CROP, CROP, dtype=torch.uint8)
    for number, (top, left) in enumerate(corners.tolist()):
        cut[number] = pictures[number, :, top : top + CROP, left : left + CROP]
    cut[flips] = cut[flips].flip(-1)
    return cut.float().sub_(255 * mean).div_(255 * deviation)
