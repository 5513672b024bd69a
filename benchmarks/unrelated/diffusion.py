"""Train a small latent diffusion model: a UNet that learns the flow from noise to latents of photographs.

JPEG files are decoded and augmented by worker processes; a frozen encoder makes latents of 32 x 32 x 16.
"""

from __future__ import annotations

import math
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from stopwatch import Stopwatch, arguments, cores
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, RandomSampler

FAULTS = ("workers", "tracker", "layout", "norm", "attention", "heads")
LATENT, PATCH = 16, 8


# data


def paint(folder: Path, count: int, size: int) -> list[Path]:
    """Soft blots of colour with the grain of a sensor."""
    files = []
    for number in range(count):
        chance = np.random.default_rng(number)
        blots = Image.fromarray(chance.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        pixels = np.asarray(blots.resize((size, size), Image.Resampling.BICUBIC)).astype(np.float32)
        pixels += chance.normal(0, 8, pixels.shape)
        files.append(folder / f"{number:05}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


class Photographs(Dataset):
    def __init__(self, files: list[Path], size: int) -> None:
        self.files, self.size = files, size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        image = self.crop(Image.open(self.files[index]).convert("RGB"))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Color(image).enhance(random.uniform(0.8, 1.2))
        image = ImageEnhance.Contrast(image).enhance(random.uniform(0.8, 1.2))
        return torch.from_numpy(np.array(image))

    def crop(self, image: Image.Image) -> Image.Image:
        side = random.uniform(0.8, 1.0) * min(image.size)
        left, top = (random.uniform(0, total - side) for total in image.size)
        box = (left, top, left + side, top + side)
        return image.resize((self.size, self.size), Image.Resampling.BICUBIC, box=box)


# model


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """RMS over channels, which come last in what is returned."""
    y = x.permute(0, 2, 3, 1).float()
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * weight


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return normed(x, weight).to(x.dtype).permute(0, 3, 1, 2)


def norm_silu(x: Tensor, weight: Tensor) -> Tensor:
    return F.silu(normed(x, weight).to(x.dtype)).permute(0, 3, 1, 2)


def norm_modulate_silu(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    y = normed(x, weight).to(x.dtype) * (1 + scale[:, None, None]) + shift[:, None, None]
    return F.silu(y).permute(0, 3, 1, 2)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return scores.softmax(-1) @ v


class Kit:
    """The functions that blocks share, compiled where there is a GPU."""

    def __init__(self, fault: str, compiled: bool) -> None:
        functions = norm, norm_silu, norm_modulate_silu
        if compiled and fault != "norm":
            functions = tuple(torch.compile(function, dynamic=False) for function in functions)
        self.norm, self.norm_silu, self.norm_modulate_silu = functions
        self.attend = softmax_attention if fault == "attention" else F.scaled_dot_product_attention


class ResBlock(nn.Module):
    def __init__(self, channels: int, embedding: int, kit: Kit) -> None:
        super().__init__()
        self.kit = kit
        self.weight1 = nn.Parameter(torch.ones(channels))
        self.weight2 = nn.Parameter(torch.ones(channels))
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.modulation = nn.Linear(embedding, 2 * channels)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.modulation(time).chunk(2, 1)
        h = self.conv1(self.kit.norm_silu(x, self.weight1))
        h = self.conv2(self.kit.norm_modulate_silu(h, self.weight2, scale, shift))
        return x + h


class AttentionBlock(nn.Module):
    def __init__(self, channels: int, heads: int, kit: Kit) -> None:
        super().__init__()
        self.heads, self.kit = heads, kit
        self.weight = nn.Parameter(torch.ones(channels))
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.out = nn.Linear(channels, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        tokens = self.kit.norm(x, self.weight).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).view(batch, -1, 3, self.heads, channels // self.heads).unbind(2)
        mixed = self.kit.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        mixed = self.out(mixed.transpose(1, 2).reshape(batch, -1, channels))
        return x + mixed.transpose(1, 2).unflatten(2, (height, width))


class Level(nn.Module):
    """Two residual blocks, each with attention behind it where `heads` is not zero."""

    def __init__(self, channels: int, embedding: int, heads: int, kit: Kit) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResBlock(channels, embedding, kit) for _ in range(2))
        self.attention = nn.ModuleList(
            AttentionBlock(channels, heads, kit) if heads else nn.Identity() for _ in range(2)
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        for block, attention in zip(self.blocks, self.attention, strict=True):
            x = attention(block(x, time))
        return x


class UNet(nn.Module):
    """Three resolutions; what goes down is added to what comes up."""

    def __init__(self, width: int, heads: int, kit: Kit) -> None:
        super().__init__()
        wide, embedding = 2 * width, 4 * width
        self.frequencies = width // 2
        self.time = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.stem = nn.Conv2d(LATENT, width, 3, padding=1, bias=False)
        self.down1 = Level(width, embedding, heads, kit)
        self.shrink1 = nn.Conv2d(width, wide, 2, stride=2, bias=False)
        self.down2 = Level(wide, embedding, 0, kit)
        self.shrink2 = nn.Conv2d(wide, wide, 2, stride=2, bias=False)
        self.middle = Level(wide, embedding, 0, kit)
        self.grow2 = nn.ConvTranspose2d(wide, wide, 2, stride=2, bias=False)
        self.up2 = Level(wide, embedding, 0, kit)
        self.grow1 = nn.ConvTranspose2d(wide, width, 2, stride=2, bias=False)
        self.up1 = Level(width, embedding, heads, kit)
        self.head = nn.Conv2d(width, LATENT, 3, padding=1, bias=False)

    def forward(self, latents: Tensor, times: Tensor) -> Tensor:
        time = F.silu(self.time(self.waves(times)))
        top = self.down1(self.stem(latents), time)
        side = self.down2(self.shrink1(top), time)
        x = self.middle(self.shrink2(side), time)
        x = self.up2(self.grow2(x) + side, time)
        return self.head(self.up1(self.grow1(x) + top, time))

    def waves(self, times: Tensor) -> Tensor:
        exponents = torch.arange(self.frequencies, device=times.device) / self.frequencies
        angles = 1000 * times[:, None] * torch.exp(-math.log(10000) * exponents)
        return torch.cat([angles.cos(), angles.sin()], 1)


# training


class NoiseLevels:
    """Loss and spread of the prediction by noise level, over the whole run."""

    def __init__(self, device: str, levels: int = 10) -> None:
        self.levels = levels
        self.sums = torch.zeros(levels, 4, device=device)
        self.table = [[0.0] * 4 for _ in range(levels)]

    def update(self, times: Tensor, losses: Tensor, predicted: Tensor) -> None:
        flat = predicted.flatten(1).float()
        rows = torch.stack([torch.ones_like(losses), losses, flat.mean(1), flat.std(1)], 1)
        self.sums.index_add_(0, (times * self.levels).long().clamp_max(self.levels - 1), rows)

    def update_each(self, times: Tensor, losses: Tensor, predicted: Tensor) -> None:
        for i in range(len(losses)):
            row = self.table[min(int(times[i].item() * self.levels), self.levels - 1)]
            row[0] += 1
            row[1] += losses[i].item()
            row[2] += predicted[i].float().mean().item()
            row[3] += predicted[i].float().std().item()


class Trainer:
    def __init__(self, options) -> None:
        self.device, fault = options.device, options.fault
        self.cuda = self.device.startswith("cuda")
        self.layout = torch.contiguous_format if fault == "layout" else torch.channels_last
        width, heads = (32, 4) if options.small else (512, 8)
        kit = Kit(fault, self.cuda)
        self.encoder = nn.Conv2d(3, LATENT, PATCH, stride=PATCH, bias=False).requires_grad_(False)
        self.model = UNet(width, 1 if fault == "heads" else heads, kit)
        for part in (self.encoder, self.model):
            part.to(self.device, memory_format=self.layout)
        self.parameters = list(self.model.parameters())
        self.averages = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=self.cuda)
        self.levels = NoiseLevels(self.device)
        self.record = self.levels.update_each if fault == "tracker" else self.levels.update

    def losses(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Noise level, loss and prediction of each image of a batch of (batch, height, width, 3) bytes."""
        with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.cuda):
            pixels = images.permute(0, 3, 1, 2).contiguous(memory_format=self.layout)
            latents = self.encoder(pixels.float() / 127.5 - 1).float()
            noise = torch.randn_like(latents)
            times = torch.rand(len(latents), device=latents.device)
            noisy = torch.lerp(latents, noise, times[:, None, None, None])
            predicted = self.model(noisy, times)
        losses = (predicted.float() - (noise - latents)).square().mean((1, 2, 3))
        return times, losses, predicted.detach()

    def warm_up(self, images: Tensor) -> None:
        """Compile and choose kernels before the loader starts."""
        for _ in range(3):
            self.losses(images)[1].mean().backward()
            self.optimizer.zero_grad()

    def step(self, images: Tensor) -> Tensor:
        times, losses, predicted = self.losses(images.to(self.device, non_blocking=True))
        loss = losses.mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch._foreach_lerp_(self.averages, self.parameters, 1e-4)
        self.record(times, losses.detach(), predicted)
        return loss


def main() -> None:
    options = arguments(__doc__, FAULTS)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    count, painted, size, batch = (8, 48, 32, 4) if options.small else (512, 320, 256, 64)
    workers = 1 if options.small else 4 if options.fault == "workers" else max(1, cores() - 2)
    trainer, watch = Trainer(options), Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        data = Photographs(paint(Path(folder), count, painted), size)
        picks = RandomSampler(data, replacement=True, num_samples=options.steps * batch)
        loader = DataLoader(data, batch, sampler=picks, num_workers=workers, pin_memory=trainer.cuda)
        trainer.warm_up(torch.zeros(batch, size, size, 3, dtype=torch.uint8, device=options.device))
        for images in watch.laps(loader):
            loss = trainer.step(images)
        watch.save(options, loss)


if __name__ == "__main__":
    main()
