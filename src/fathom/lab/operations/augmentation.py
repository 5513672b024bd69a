"""Crop, flip and normalise images.

    fathom lab run batched-transform device-augmentation

sample_by_sample transforms each image alone, batched_transform the batch. on_host sends floats to the device;
device_augmentation sends bytes and transforms them there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 28
Given = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, "cpu")
    images = draw.integers(0, 256, 256, 3, 32, 32, dtype=torch.uint8)
    return images, draw.integers(0, 32 - CROP + 1, 256, 2), draw.integers(0, 2, 256).bool()


def sample_by_sample(images: Tensor, corners: Tensor, flips: Tensor) -> Tensor:
    mean, deviation = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(DEVIATION).view(3, 1, 1)
    made = []
    for image, (top, left), flip in zip(images, corners.tolist(), flips.tolist(), strict=True):
        cut = image[:, top : top + CROP, left : left + CROP].float() / 255
        cut = cut.flip(-1) if flip else cut
        made.append((cut - mean) / deviation)
    return torch.stack(made)


def batched_transform(images: Tensor, corners: Tensor, flips: Tensor) -> Tensor:
    """title: Transform the batch instead of its samples
    pair: {group: input, plain: sample_by_sample}
    saves: host time of the transform
    idea: Normalising, cropping and casting one sample at a time pays for Python and the dispatcher each time.
      If samples are collated first, the same few operations transform the whole batch, on the device if it is
      already there.
    cost: Memory for the raw batch. Per-sample parameters still need a copy of bytes each; the rest is one
      call.
    not_when: Samples differ in shape until they are cropped, workers have time to spare, or several threads
      share busy cores. A large operation waits for the slowest of its threads, which small ones do not start
      (0.4 times as fast on two busy cores, 2.2 times with one thread, as loader workers have).
    shows:
      input table, time of the transform: grows with the samples → hardly grows
    no_gain: hosts whose cores are busy, because large operations wait for their slowest thread; with all
      16 cores of an H200 host busy, 0.12 times as fast.
    tips: [data.batched-transforms]
    findings: {input-slow-transform: 1, input-cpu-preprocessing: 2}"""
    mean, deviation = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(DEVIATION).view(1, 3, 1, 1)
    cut = torch.empty(len(images), 3, CROP, CROP, dtype=torch.uint8)
    for number, (top, left) in enumerate(corners.tolist()):
        cut[number] = images[number, :, top : top + CROP, left : left + CROP]
    cut[flips] = cut[flips].flip(-1)
    return cut.float().sub_(255 * mean).div_(255 * deviation)


def large_images(seed: int, device: str | None = None) -> Given:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    samples, size, crop = draw.shape([(256, 6), (256, 12), (224, 8)])
    images = host.integers(0, 256, samples, 3, size, size, dtype=torch.uint8)
    images = images.pin_memory() if draw.device == "cuda" else images
    corners, flips = host.integers(0, size - crop + 1, samples, 2), host.integers(0, 2, samples).bool()
    mean, deviation = (torch.tensor(x, device=draw.device) for x in (MEAN, DEVIATION))
    return images, corners, flips, mean.view(3, 1, 1), deviation.view(3, 1, 1)


def _crop(images: Tensor) -> int:
    return 224 if images.shape[-1] == 256 else 8


def on_host(images: Tensor, corners: Tensor, flips: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    crop, made = _crop(images), []
    of_host = mean.cpu(), deviation.cpu()
    for image, (top, left), flip in zip(images, corners.tolist(), flips.tolist(), strict=True):
        cut = image[:, top : top + crop, left : left + crop].to(mean.dtype) / 255
        cut = cut.flip(-1) if flip else cut
        made.append((cut - of_host[0]) / of_host[1])
    return torch.stack(made).to(mean.device)


def device_augmentation(
    images: Tensor, corners: Tensor, flips: Tensor, mean: Tensor, deviation: Tensor
) -> Tensor:
    """title: Augment on the device
    pair: {group: input, plain: on_host, inputs: large_images, work: augmenting}
    saves: host time of the transform, and three quarters of the bytes over the link
    idea: Cropping, flipping and normalising are arithmetic on every pixel. On the host, a sample at a time,
      they take cores and turn bytes into floats before the copy. Sent as bytes, the batch is augmented as a
      whole by the device, which gathers each sample's crop.
    cost: Some kernels in each step, and whole images instead of crops over the link. Bytes are a quarter of
      floats.
    not_when: The device is the bottleneck and cores are idle, the crops are small parts of large images, or
      samples differ in shape.
    shows:
      ops on processor tensors of the images' size: four per sample → none
      bytes from host to device: four per number → one per number
    tips: [data.transforms]
    findings: {input-cpu-preprocessing: 1, input-slow-transform: 2}
    needs: {gpu: true}
    proof: {latency: included}"""
    there = images.to(mean.device, non_blocking=True)
    top, left = corners.to(mean.device).unbind(1)
    step = torch.arange(_crop(images), device=mean.device)
    across = torch.where(flips.to(mean.device)[:, None], step.flip(0), step)
    rows, columns = top[:, None] + step, left[:, None] + across
    sample = torch.arange(len(there), device=mean.device)[:, None, None, None]
    colour = torch.arange(3, device=mean.device)[:, None, None]
    cut = there[sample, colour, rows[:, None, :, None], columns[:, None, None, :]]
    return cut.to(mean.dtype).sub_(255 * mean).div_(255 * deviation)


def augmenting(
    images: Tensor, corners: Tensor, flips: Tensor, mean: Tensor, deviation: Tensor
) -> dict[str, float]:
    return {"bytes": 5 * len(images) * 3 * _crop(images) ** 2}
