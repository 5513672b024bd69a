"""Shared by all fault programs: options, a stopwatch, and a few plain models."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from faults import parallel
from faults.labels import FORMS, Fault

__all__ = ["Attention", "Fault", "Options", "PatchNet", "conv_net", "epochs", "prefetched", "start", "tower"]
T = TypeVar("T")


@dataclass
class Options:
    """The command line, and the stopwatch that goes with it."""

    form: str
    severity: int
    steps: int
    device: str
    small: bool
    times: Path | None
    metrics: Path | None = None
    ticks: list[float] = field(default_factory=list)

    @property
    def faulty(self) -> bool:
        return self.form == "faulty"

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def dtype(self) -> torch.dtype:
        """The working precision of a program that is well off: bfloat16, and float32 on a processor."""
        return torch.bfloat16 if self.cuda else torch.float32

    def size(self, full: int, small: int) -> int:
        return small if self.small else full

    def by(self, *values: T) -> T:
        """The value of this severity, the mildest first."""
        return values[self.severity - 1]

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(*shape, device=self.device, dtype=dtype or self.dtype)

    def choices(self, most: int, *shape: int) -> Tensor:
        """Whole numbers below `most`: tokens, classes."""
        return torch.randint(most, shape, device=self.device)

    def laps(self, things: Iterable[Any] | None = None) -> Iterator[Any]:
        """So many of `things` (numbers, by default) as there are steps, with a tick around each."""
        source = iter(range(self.steps) if things is None else things)
        self.ticks = [time.perf_counter()]
        for _ in range(self.steps):
            yield next(source)
            self.ticks.append(time.perf_counter())


def start(main: Callable[[Options], Tensor]) -> float:
    """Run `main`, and print the last loss and the host's step times as one line of JSON."""
    options = parse()
    torch.manual_seed(0)
    if parallel.takes_turns():
        import_ahead(vars(sys.modules["__main__"]).values())
    with parallel.turn():
        loss = main(options).item()  # waits for the device
        end = time.perf_counter()
    laps = [after - before for before, after in pairwise(options.ticks)]
    record = {"form": options.form, "severity": options.severity, "steps": len(laps), "loss": loss}
    record |= {
        "median_ms": 1e3 * statistics.median(laps),
        "mean_ms": 1e3 * (end - options.ticks[0]) / len(laps),
    }
    print(json.dumps(record), flush=True)
    if options.times and os.environ.get("RANK", "0") == "0":  # one rank writes the file
        options.times.write_text(json.dumps(record | {"steps_s": laps}))
    if options.metrics:
        options.metrics.write_text(json.dumps({"loss": loss}))
    return loss


def import_ahead(used: Iterable[Any]) -> None:
    """Import the modules of the first step or kernel, 1.5 s of a processor, before the program's turn."""
    classes = [item for item in used if isinstance(item, type)]
    if any(issubclass(class_name, torch.optim.Optimizer) for class_name in classes):
        importlib.import_module("torch._dynamo")  # as an optimizer does
    if "faults.cuda" in sys.modules:
        with suppress(ImportError):
            importlib.import_module("cupy")


def parse(words: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=FORMS, default="faulty")
    parser.add_argument("--severity", type=int, choices=(1, 2, 3), default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    parser.add_argument("--times", type=Path, help="write the step times to this file, as JSON")
    parser.add_argument("--metrics", type=Path, help="write the last loss to this file, for `fathom prove`")
    return Options(**vars(parser.parse_args(words)))


def tower(width: int, depth: int, classes: int = 64) -> nn.Sequential:
    """Wide layers with one cheap activation between two products: nothing to fuse, little to launch."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width, bias=False), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight, std=math.sqrt(2 / width))
    return nn.Sequential(*layers, nn.Linear(width, classes, bias=False))


class PatchNet(nn.Module):
    """Images in, classes out: patches of 16 pixels, each through wide layers, then their mean."""

    def __init__(self, width: int, depth: int, classes: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * 16 * 16, width, bias=False)
        self.body = tower(width, depth, classes)

    def forward(self, images: Tensor) -> Tensor:
        batch, channels, height, wide = images.shape
        patches = images.view(batch, channels, height // 16, 16, wide // 16, 16)
        patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, 3 * 16 * 16)
        return self.body(self.embed(patches)).mean(1)


def conv_net(channels: int, depth: int, classes: int = 64) -> nn.Sequential:
    """Convolutions over maps that already have `channels` channels."""
    layers = [
        layer
        for _ in range(depth)
        for layer in (nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.ReLU())
    ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes, bias=False)
    )


class Attention(nn.Module):
    """Causal self-attention, by a function of q, k, v, each of (batch, heads, length, head)."""

    def __init__(self, width: int, heads: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(batch, length, width))


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def epochs(loader: Iterable[T]) -> Iterator[T]:
    """Epoch after epoch of a loader."""
    while True:
        yield from loader


def prefetched(batches: Iterable[Any], device: str) -> Iterator[list[Tensor]]:
    """Batches on the device, each copied on a separate stream while the previous one is processed."""
    if not device.startswith("cuda"):
        yield from ([tensor.to(device) for tensor in batch] for batch in batches)
        return
    stream, source = torch.cuda.Stream(), iter(batches)
    coming = _send(source, stream, device)
    while coming is not None:
        torch.cuda.current_stream().wait_stream(stream)
        here = coming
        for tensor in here:
            tensor.record_stream(torch.cuda.current_stream())
        coming = _send(source, stream, device)
        yield here


def _send(source: Iterator[Any], stream: Any, device: str) -> list[Tensor] | None:
    batch = next(source, None)
    if batch is None:
        return None
    with torch.cuda.stream(stream):
        return [tensor.to(device, non_blocking=True) for tensor in batch]
