"""Process groups of fault programs: one rank per GPU under torchrun, or this process alone; and light layers.

Products of the size of a real model keep all cores of a processor busy, so that ranks delay each other and
hide the fault. There a `Layer` computes a small product, and sleeps for as long as a large one would take. A
GPU is its rank's own: there a `Layer` computes large products in that place, about as long on an H100.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from faults.common import Options
from faults.labels import LATE

__all__ = ["WIDTH", "Layer", "joined", "late_rank", "layers", "timed"]
WIDTH = 64
FORWARD_S, BACKWARD_S = 1.5e-3, 3e-3  # of a layer
LARGE, PRODUCT_S = 4096, 2.5e-4  # rows of a square product of 16-bit numbers; about what it takes on an H100


@contextmanager
def joined(options: Options) -> Iterator[tuple[int, int]]:
    """Join the process group and yield (rank, ranks); the rank uses its own GPU.

    Without torchrun the group has one rank, so that a program can be tried on a processor.
    """
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if options.cuda:
        options.device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        alone = {} if ranks > 1 else {"init_method": f"file://{Path(folder) / 'store'}"}
        dist.init_process_group("nccl" if options.cuda else "gloo", rank=rank, world_size=ranks, **alone)
        try:
            yield rank, ranks
        finally:
            dist.destroy_process_group()


def late_rank(ranks: int) -> int:
    """The rank with the fault: the last one, unless the environment says otherwise."""
    return int(os.environ.get(LATE, ranks - 1)) % ranks


class _Timed(torch.autograd.Function):
    """A product that takes a given time, forwards and backwards."""

    @staticmethod
    def forward(context: Any, values: Tensor, forward_s: float, backward_s: float) -> Tensor:
        context.backward_s = backward_s
        _spend(values, forward_s)
        return values * 1.0

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        _spend(gradient, context.backward_s)
        return gradient * 1.0, None, None


def _spend(like: Tensor, seconds: float) -> None:
    """Sleep, or have the GPU of `like` compute for about that time."""
    if not like.is_cuda:
        time.sleep(seconds)
        return
    factor, product = _large(like.device)
    for _ in range(round(seconds / PRODUCT_S)):
        torch.mm(factor, factor, out=product)


@cache
def _large(device: torch.device) -> tuple[Tensor, Tensor]:
    factor = torch.randn(LARGE, LARGE, device=device, dtype=torch.bfloat16)
    return factor, torch.empty_like(factor)


def timed(values: Tensor, forward_s: float, backward_s: float) -> Tensor:
    """Return `values`, after a time; their gradient takes another one."""
    return _Timed.apply(values, forward_s, backward_s)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """A layer whose passes take `forward` and `backward` times the usual time, and with
    `tokens` as much longer as sequences are longer than that.
    """

    def __init__(self, forward: float = 1.0, backward: float = 1.0, tokens: int = 0) -> None:
        super().__init__()
        self.product = nn.Linear(WIDTH, WIDTH)
        self.times, self.tokens = (FORWARD_S * forward, BACKWARD_S * backward), tokens

    def forward(self, values: Tensor) -> Tensor:
        longer = values.shape[-2] / self.tokens if self.tokens else 1.0
        return timed(torch.relu(self.product(values)), *(longer * time for time in self.times))


def layers(options: Options, make: Callable[[], nn.Module] = Layer) -> nn.Sequential:
    """Four layers on the rank's device, the same on all ranks."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    return nn.Sequential(*(make() for _ in range(4))).to(options.device, options.dtype)
