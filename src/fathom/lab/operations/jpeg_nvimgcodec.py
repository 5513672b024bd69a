"""Decode JPEG files with nvImageCodec.

    fathom lab run nvimgcodec-decode

on_host decodes with Pillow, nvimgcodec_decode on the device.
"""

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
    files = [encoded(image) for image in host.images(samples, size)]
    return files, torch.full((), 255.0, device=draw.device)


def on_host(files: list[Tensor], scale: Tensor) -> Tensor:
    return torch.stack([decoded(file) for file in files]).to(scale.device) / scale


@cache
def _decoder() -> nvimgcodec.Decoder:
    return nvimgcodec.Decoder()


def nvimgcodec_decode(files: list[Tensor], scale: Tensor) -> Tensor:
    """title: Decode images with nvImageCodec
    pair: {group: input, plain: on_host}
    saves: host time of decoding, and bytes over the link
    idea: A decoder on the host takes one image after another and sends all its pixels. nvImageCodec takes a
      list of compressed files of any supported format, and for each the best decoder, which is the chip's
      JPEG engine, kernels, or the host's cores where neither can.
    cost: Memory for the batch, multiprocessor time where the engine is not used, and one or two levels of
      difference in some pixels, since nvJPEG rounds differently from libjpeg (so results are compared as
      bf16).
    not_when: Cores are idle and the device is not, or the files are of formats that it leaves to the host.
    shows:
      input table, time to fetch a sample: decoding → reading
      bytes from host to device: those of the pixels → those of the files, about a tenth
    tips: [data.decode-on-device]
    findings: {input-slow-decode: 3, input-cpu-preprocessing: 5}
    needs: {gpu: true, packages: [nvidia.nvimgcodec, PIL]}
    proof: {precision: bf16, latency: included}"""
    # Only on a GPU: without a driver it creates no decoder, not even one for the host.
    stream = torch.cuda.current_stream().cuda_stream
    sources = [nvimgcodec.CodeStream(file.numpy()) for file in files]
    images = _decoder().decode(sources, cuda_stream=stream)
    if None in images:
        raise ValueError("nvImageCodec cannot decode one of the files.")
    return torch.stack([torch.from_dlpack(image.to_dlpack(cuda_stream=stream)) for image in images]) / scale
