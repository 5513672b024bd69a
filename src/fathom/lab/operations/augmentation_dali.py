"""Decode, crop, flip and normalise images in DALI.

    fathom lab run dali-pipeline

image_by_image uses Pillow and torch on the host; dali_pipeline processes the batch in one graph.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from nvidia.dali import fn, pipeline_def, types
from torch import Tensor

from fathom.lab import Draw
from fathom.lab.jpeg import decoded, encoded

MEAN, DEVIATION, THREADS = 118.0, 58.0, 4
Given = tuple[list[Tensor], Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    """Return files, upper left corners of crops, whether each crop is mirrored, and a gain per channel."""
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    samples, size = draw.size(gpu=64, cpu=2), draw.size(gpu=512, cpu=32)
    files = [encoded(picture) for picture in host.images(samples, size)]
    corners = host.integers(0, size // 8 + 1, samples, 2)
    return files, corners, host.integers(0, 2, samples), draw.normal(3, 1, 1)


def _side(gain: Tensor) -> tuple[int, int]:
    """Return the side in pixels of a picture, and of its crop."""
    return (512, 448) if gain.is_cuda else (32, 28)


def _augmented(file: Tensor, corner: Tensor, mirrored: bool, side: int) -> Tensor:
    top, left = corner.tolist()
    cut = decoded(file)[top : top + side, left : left + side].permute(2, 0, 1)
    return ((cut.flip(2) if mirrored else cut).float() - MEAN) / DEVIATION


def image_by_image(files: list[Tensor], corners: Tensor, mirror: Tensor, gain: Tensor) -> Tensor:
    each = zip(files, corners, mirror.tolist(), strict=True)
    cut = [_augmented(file, corner, bool(flip), _side(gain)[1]) for file, corner, flip in each]
    return torch.stack(cut).to(gain.device) * gain


@pipeline_def
def _graph(decoder: str, side: int) -> Any:
    top, left, mirror = (fn.external_source(name=name) for name in ("top", "left", "mirror"))
    pixels = fn.decoders.image(fn.external_source(name="files"), device=decoder, output_type=types.RGB)
    return fn.crop_mirror_normalize(
        pixels,
        crop=(side, side),
        crop_pos_y=top,
        crop_pos_x=left,
        mirror=mirror,
        mean=MEAN,
        std=DEVIATION,
        dtype=types.FLOAT,
        output_layout="CHW",
    )


@cache
def _pipeline(samples: int, side: int, device: int | None) -> Any:
    decoder = "cpu" if device is None else "mixed"
    made = {"batch_size": samples, "num_threads": THREADS, "device_id": device}
    pipeline = _graph(decoder, side, **made, prefetch_queue_depth=1)  # it is fed what it answers with
    pipeline.build()
    return pipeline


def dali_pipeline(files: list[Tensor], corners: Tensor, mirror: Tensor, gain: Tensor) -> Tensor:
    """title: Decode and augment in one DALI pipeline
    pair: {group: input, plain: image_by_image}
    saves: host time of decoding and augmenting
    idea: Decoding, cropping, mirroring and normalising one image at a time keeps a core busy for milliseconds
      each. In DALI they are a graph that takes a batch. Files cross the link compressed, nvJPEG decodes them,
      and one kernel crops, mirrors and normalises. On a processor, DALI's threads share the batch.
    cost: Multiprocessor time and memory of the device, code in DALI's operators instead of Python, and one or
      two levels of difference in some pixels, since nvJPEG rounds differently from libjpeg (so results are
      compared as bf16).
    not_when: Cores are idle and the device is not, or an augmentation has no operator and returns to Python.
    shows:
      input table, time to fetch a sample: decoding, cropping, normalising → reading
      bytes from host to device: four per number of the cropped images → those of the files
    tips: [data.decode-on-device]
    findings: {input-slow-decode: 4, input-cpu-preprocessing: 4}
    needs: {packages: [nvidia.dali, PIL]}
    proof: {precision: bf16, latency: included}"""
    side_of_image, side = _side(gain)
    top, left = (
        (corners.float() / (side_of_image - side)).T.contiguous().numpy()
    )  # shares of what is left over
    pipeline = _pipeline(len(files), side, gain.device.index if gain.is_cuda else None)
    given = {"top": top, "left": left, "mirror": mirror.int().numpy()}
    (batch,) = pipeline.run(files=[file.numpy() for file in files], **given)
    result = torch.from_dlpack(batch.as_tensor()) * gain
    if gain.is_cuda:
        torch.cuda.current_stream().synchronize()  # the pipeline may write its buffer again
    return result
