"""Inputs of a technique: random tensors on the device at hand, large on a GPU and small on a processor."""

from __future__ import annotations

from typing import Any

import torch


class Draw:
    """Draws from a seed alone. `device` is by default the GPU where torch sees one, else the processor."""

    def __init__(self, seed: int, device: str | None = None) -> None:
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._source = torch.Generator(self.device).manual_seed(seed)

    def size(self, *, gpu: int, cpu: int) -> int:
        """The one that fits the device."""
        return gpu if self.device == "cuda" else cpu

    def normal(self, *shape: int, dtype: Any = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Normally distributed values."""
        values = torch.randn(shape, generator=self._source, device=self.device)
        return values.mul_(scale).to(dtype)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Floats in [0, 1)."""
        return torch.rand(shape, generator=self._source, device=self.device)

    def whole(self, low: int, high: int, *shape: int, dtype: Any = torch.int64) -> torch.Tensor:
        """Whole numbers from `low` to `high` - 1."""
        return torch.randint(low, high, shape, generator=self._source, device=self.device, dtype=dtype)

    def pictures(self, samples: int, size: int) -> torch.Tensor:
        """Pictures (samples, 3, size, size) of bytes, as smooth as photographs are, so that they compress."""
        coarse = 128 + 127 * (2 * self.uniform(samples, 3, size // 16, size // 16) - 1)
        smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
        return smooth.clamp(0, 255).to(torch.uint8)
