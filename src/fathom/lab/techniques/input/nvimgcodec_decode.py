"""
title: Pictures decoded by nvImageCodec
saves: host time of decoding, and bytes that cross the link
idea: >-
  A decoder of the host takes one picture after another, and sends all its pixels. nvImageCodec takes a list
  of compressed ones of any format that it knows, and for each the best that is there: the chip's JPEG
  engine, kernels, or the host's cores where neither can.
cost: >-
  Memory for the batch, multiprocessor time where the engine is not used, and one or two levels of difference
  in some pixels: nvJPEG rounds its transform otherwise than libjpeg (hence compared as bf16).
not_when: >-
  Cores are idle and the device is not, or the files are of formats that it leaves to the host.
shows:
  - what: input table, time to fetch a sample
    plain: decoding
    tuned: reading
  - what: bytes from host to device
    plain: those of the pixels
    tuned: those of the files, about a tenth
findings: [input-slow-decode, input-cpu-preprocessing]
needs: {gpu: true, packages: [nvidia.nvimgcodec, PIL]}
precision: bf16
latency: included
"""
# Only on a GPU: without a driver it makes no decoder, not even one of the host.

from __future__ import annotations

from functools import cache

import nvidia.nvimgcodec as nvimgcodec
import torch
from torch import Tensor

from fathom.lab import Draw
from fathom.lab.jpeg import decoded, encoded


def inputs(seed: int, device: str | None = None) -> tuple[list[Tensor], Tensor]:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    samples, size = 64, 512
    files = [encoded(picture) for picture in host.images(samples, size)]
    return files, torch.full((), 255.0, device=draw.device)


def plain(files: list[Tensor], scale: Tensor) -> Tensor:
    return torch.stack([decoded(file) for file in files]).to(scale.device) / scale


@cache
def _decoder() -> nvimgcodec.Decoder:
    return nvimgcodec.Decoder()


def tuned(files: list[Tensor], scale: Tensor) -> Tensor:
    stream = torch.cuda.current_stream().cuda_stream
    sources = [nvimgcodec.CodeStream(file.numpy()) for file in files]
    pictures = _decoder().decode(sources, cuda_stream=stream)
    if None in pictures:
        raise ValueError("nvImageCodec cannot decode one of the files.")
    return torch.stack([torch.from_dlpack(one.to_dlpack(cuda_stream=stream)) for one in pictures]) / scale
