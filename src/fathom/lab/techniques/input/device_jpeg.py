"""
title: JPEGs decoded by the device
saves: host time of decoding, and bytes that cross the link
idea: >-
  A core decodes a hundred or two pictures a second, and eight devices ask for tens of thousands. nvJPEG takes
  the compressed files as they are, a batch at a time: Huffman decoding in an engine of its own or on the
  multiprocessors, everything after it as kernels.
cost: >-
  Multiprocessor time where the chip has no JPEG engine, memory for the batch, and one or two levels of
  difference in some pixels: nvJPEG rounds its transform otherwise than libjpeg (hence compared as bf16).
not_when: >-
  Cores are idle and the device is not, pictures are small, or the files are progressive JPEGs, which the
  hardware engine leaves to the host.
shows:
  - what: input table, time to fetch a sample
    plain: decoding
    tuned: reading
  - what: bytes from host to device
    plain: those of the pixels
    tuned: those of the files, about a tenth
findings: [input-slow-decode, input-cpu-preprocessing]
needs: {gpu: true, packages: [torchvision]}
precision: bf16
latency: included
"""
# Only on a GPU: nvJPEG decodes nowhere else.

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg

from fathom.lab import Draw

RGB = ImageReadMode.RGB


def inputs(seed: int, device: str | None = None) -> tuple[list[Tensor], Tensor]:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    samples, size = draw.size(gpu=64, cpu=2), draw.size(gpu=512, cpu=32)
    scale = torch.full((), 255.0, device=draw.device)
    return [encode_jpeg(picture, quality=90) for picture in host.images(samples, size)], scale


def _batched(pictures: list[Tensor], scale: Tensor) -> Tensor:
    return torch.stack(pictures).to(scale.device) / scale


def plain(files: list[Tensor], scale: Tensor) -> Tensor:
    return _batched([decode_jpeg(file, mode=RGB) for file in files], scale)


def tuned(files: list[Tensor], scale: Tensor) -> Tensor:
    return _batched(decode_jpeg(files, mode=RGB, device=scale.device), scale)
