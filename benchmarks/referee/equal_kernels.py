"""Ten kernels of different kinds, and each with 2 % more work: one launch to every fifty, the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fathom.lab import Draw

LAUNCHES, MORE = 50, 51  # of a call: on every kernel the longer form is longer by exactly its own time


@dataclass(frozen=True)
class Kernel:
    """`once` launches it; `draw` makes its arguments."""

    once: Callable[..., torch.Tensor]
    draw: Callable[[Draw], tuple[Any, ...]]

    def inputs(self, seed: int) -> tuple[Any, ...]:
        """Large on a GPU, small on a processor."""
        return self.draw(Draw(seed))

    def plain(self, *arguments: Any) -> torch.Tensor:
        """Fifty launches of the same."""
        for _ in range(LAUNCHES - 1):
            self.once(*arguments)
        return self.once(*arguments)

    def longer(self, *arguments: Any) -> torch.Tensor:
        """One launch more."""
        for _ in range(MORE - 1):
            self.once(*arguments)
        return self.once(*arguments)


def _rows(draw: Draw) -> torch.Tensor:
    return draw.normal(draw.size(gpu=4096, cpu=32), draw.size(gpu=2048, cpu=128))


def _affine(draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = _rows(draw)
    return x, draw.normal(x.shape[1]), draw.normal(x.shape[1])


def _square(draw: Draw) -> torch.Tensor:
    size = draw.size(gpu=2048, cpu=64)
    return draw.normal(size, size, dtype=torch.bfloat16)


def _heads(draw: Draw) -> torch.Tensor:
    length = draw.size(gpu=1024, cpu=32)
    return draw.normal(2, draw.size(gpu=16, cpu=2), length, 64, dtype=torch.bfloat16)


def _indexed(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    table = _rows(draw)
    return table, draw.integers(0, len(table), len(table))


def _images(draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    channels = draw.size(gpu=128, cpu=4)
    images = draw.normal(draw.size(gpu=16, cpu=2), channels, *[draw.size(gpu=56, cpu=8)] * 2)
    return images.bfloat16(), draw.normal(channels, channels, 3, 3, dtype=torch.bfloat16)


def _normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, weight.shape, weight, bias)


def _convolved(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(images, weight, padding=1)


elementwise = Kernel(functional.gelu, lambda draw: (_rows(draw),))
reduction = Kernel(lambda x: x.sum(dim=1), lambda draw: (_rows(draw),))
softmax = Kernel(lambda x: x.softmax(dim=1), lambda draw: (_rows(draw),))
layer_norm = Kernel(_normalised, _affine)
matmul = Kernel(torch.matmul, lambda draw: (_square(draw), _square(draw)))
attention = Kernel(
    functional.scaled_dot_product_attention, lambda draw: (_heads(draw), _heads(draw), _heads(draw))
)
cumsum = Kernel(lambda x: x.cumsum(dim=1), lambda draw: (_rows(draw),))
transposed_copy = Kernel(lambda x: x.t().contiguous(), lambda draw: (_rows(draw),))
gather = Kernel(lambda table, rows: table[rows], _indexed)
convolution = Kernel(_convolved, _images)

KERNELS = {name: kernel for name, kernel in globals().items() if isinstance(kernel, Kernel)}
