"""Draw inputs of an operation: random tensors, large on a GPU and small on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Size = int | tuple[int, int]  # on any device, or (on a GPU, on a CPU)


class Draw:
    """Draws random tensors that depend only on `seed`. By default on the GPU, if torch sees one."""

    def __init__(self, seed: int, device: str | None = None) -> None:
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._source = torch.Generator(self.device).manual_seed(seed)

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16 on a GPU, float32 on a CPU."""
        return torch.bfloat16 if self.device == "cuda" else torch.float32

    def size(self, *, gpu: int, cpu: int) -> int:
        """Return `gpu` on a GPU, `cpu` on a CPU."""
        return gpu if self.device == "cuda" else cpu

    def shape(self, sizes: Sequence[Size]) -> list[int]:
        """Return the sizes for this device."""
        return [size if isinstance(size, int) else self.size(gpu=size[0], cpu=size[1]) for size in sizes]

    def normal(self, *shape: int, dtype: Any = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Return normally distributed values times `scale`."""
        values = torch.randn(shape, generator=self._source, device=self.device)
        return values.mul_(scale).to(dtype)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Return floats in [0, 1)."""
        return torch.rand(shape, generator=self._source, device=self.device)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = torch.int64) -> torch.Tensor:
        """Return integers from `low` to `high` - 1."""
        return torch.randint(low, high, shape, generator=self._source, device=self.device, dtype=dtype)

    def images(self, samples: int, size: int) -> torch.Tensor:
        """Return uint8 images (samples, 3, size, size), as smooth as photographs, so that they compress."""
        coarse = 128 + 127 * (2 * self.uniform(samples, 3, size // 16, size // 16) - 1)
        smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
        return smooth.clamp(0, 255).to(torch.uint8)


def matmul_unit(x: torch.Tensor) -> str:
    """Return the ceiling for products of tensors like `x`: `matmul.bf16`, or `vector.fp32` for float32."""
    return "matmul.bf16" if x.dtype == torch.bfloat16 else "vector.fp32"


def normal(*shapes: tuple[Size, ...], narrow: bool = False, scale: float = 1.0) -> Callable[..., Any]:
    """Return a function `inputs` that draws normal tensors of these shapes; `narrow`: bfloat16 on a GPU."""

    def inputs(seed: int, device: str | None = None) -> torch.Tensor | tuple[torch.Tensor, ...]:
        draw = Draw(seed, device)
        dtype = draw.dtype if narrow else torch.float32
        drawn = tuple(draw.normal(*draw.shape(shape), dtype=dtype, scale=scale) for shape in shapes)
        return drawn if shapes[1:] else drawn[0]

    return inputs


def uniform(*shape: Size) -> Callable[..., Any]:
    """Return a function `inputs` that draws a float32 tensor in [0, 1)."""
    return lambda seed, device=None: (draw := Draw(seed, device)).uniform(*draw.shape(shape))


def traffic(*times: float) -> Callable[..., dict[str, float]]:
    """Return a function `work` that declares the bytes of the arguments, each times its number in `times`."""
    return lambda *inputs: {"bytes": sum(n * each.nbytes for n, each in zip(times, inputs, strict=False))}
