"""
title: Augmenting on the device
saves: host time of the transform, and three quarters of the bytes that cross the link
idea: >-
  Cropping, flipping and normalising are arithmetic on every pixel. Done on the host, a sample at a time,
  they cost cores and turn bytes into floats before these cross the link. Sent as bytes, the batch is
  augmented as a whole by the device, which gathers each sample's own crop.
cost: >-
  Some kernels of the device's time in each step, and the whole pictures cross the link, not their crops.
  Bytes are a quarter of floats.
not_when: >-
  The device is the bottleneck and cores idle, the crops are small parts of large pictures, or samples differ
  in shape.
shows:
  - what: ops on processor tensors of the pictures' size
    plain: four a sample
    tuned: none
  - what: bytes from host to device
    plain: four a number
    tuned: one a number
findings: [input-cpu-preprocessing, input-slow-transform]
needs: {gpu: true}
latency: included
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Given = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    samples, size, crop = (draw.size(gpu=g, cpu=c) for g, c in ((256, 6), (256, 12), (224, 8)))
    pictures = host.integers(0, 256, samples, 3, size, size, dtype=torch.uint8)
    pictures = pictures.pin_memory() if draw.device == "cuda" else pictures
    corners, flips = host.integers(0, size - crop + 1, samples, 2), host.integers(0, 2, samples).bool()
    mean, deviation = (torch.tensor(x, device=draw.device) for x in (MEAN, DEVIATION))
    return pictures, corners, flips, mean.view(3, 1, 1), deviation.view(3, 1, 1)


def _crop(pictures: Tensor) -> int:
    return 224 if pictures.shape[-1] == 256 else 8


def plain(pictures: Tensor, corners: Tensor, flips: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    crop, made = _crop(pictures), []
    of_host = mean.cpu(), deviation.cpu()
    for picture, (top, left), flip in zip(pictures, corners.tolist(), flips.tolist(), strict=True):
        cut = picture[:, top : top + crop, left : left + crop].to(mean.dtype) / 255
        cut = cut.flip(-1) if flip else cut
        made.append((cut - of_host[0]) / of_host[1])
    return torch.stack(made).to(mean.device)


def tuned(pictures: Tensor, corners: Tensor, flips: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    there = pictures.to(mean.device, non_blocking=True)
    top, left = corners.to(mean.device).unbind(1)
    step = torch.arange(_crop(pictures), device=mean.device)
    across = torch.where(flips.to(mean.device)[:, None], step.flip(0), step)
    rows, columns = top[:, None] + step, left[:, None] + across
    sample = torch.arange(len(there), device=mean.device)[:, None, None, None]
    colour = torch.arange(3, device=mean.device)[:, None, None]
    cut = there[sample, colour, rows[:, None, :, None], columns[:, None, None, :]]
    return cut.to(mean.dtype).sub_(255 * mean).div_(255 * deviation)


def work(
    pictures: Tensor, corners: Tensor, flips: Tensor, mean: Tensor, deviation: Tensor
) -> dict[str, float]:
    return {"bytes": 5 * len(pictures) * 3 * _crop(pictures) ** 2}
