"""Decode JPEG files with torchvision.

    fathom lab run device-jpeg

on_host decodes with libjpeg, device_jpeg with nvJPEG.
"""

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
    return [encode_jpeg(image, quality=90) for image in host.images(samples, size)], scale


def _batched(images: list[Tensor], scale: Tensor) -> Tensor:
    return torch.stack(images).to(scale.device) / scale


def on_host(files: list[Tensor], scale: Tensor) -> Tensor:
    return _batched([decode_jpeg(file, mode=RGB) for file in files], scale)


def device_jpeg(files: list[Tensor], scale: Tensor) -> Tensor:
    """title: Decode JPEGs on the device
    pair: {group: input, plain: on_host}
    saves: host time of decoding, and bytes over the link
    idea: A core decodes a hundred or two images a second, and eight devices need tens of thousands. nvJPEG
      takes a batch of compressed files. An engine or the multiprocessors do the Huffman decoding, and kernels
      the rest.
    cost: Multiprocessor time where the chip has no JPEG engine, memory for the batch, and one or two levels
      of difference in some pixels, since nvJPEG rounds differently from libjpeg (so results are compared as
      bf16).
    not_when: Cores are idle and the device is not, images are small, or the files are progressive JPEGs,
      which the engine leaves to the host.
    shows:
      input table, time to fetch a sample: decoding → reading
      bytes from host to device: those of the pixels → those of the files, about a tenth
    tips: [data.decode-on-device]
    findings: {input-slow-decode: 2, input-cpu-preprocessing: 3}
    needs: {gpu: true, packages: [torchvision]}
    proof: {precision: bf16, latency: included}"""
    # Only on a GPU: nvJPEG needs one.
    return _batched(decode_jpeg(files, mode=RGB, device=scale.device), scale)
