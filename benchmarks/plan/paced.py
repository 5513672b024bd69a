"""Small programs of several kinds, whose steps the host's pace bounds in part; none is a GPT.

python -m benchmarks.plan.paced PROGRAM [--device cuda] [--steps N] [--times FILE]

`--times` writes the seconds of each step by the wall clock, and by the clock of the thread, which other
load on the machine does not lengthen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter, thread_time

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

CLASSES = 10
Made = tuple[nn.Module, Tensor, Callable[..., torch.optim.Optimizer]]


class Residual(nn.Module):
    def __init__(self, width: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.second = convolution(width, out, stride), convolution(out, out)
        self.beside = nn.Conv2d(width, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.beside(x))


class Encoder(nn.Module):
    """A BERT-like classifier."""

    def __init__(self, width: int, layers: int, tokens: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, activation="gelu")
        self.words, self.places = nn.Embedding(1000, width), nn.Parameter(torch.randn(tokens, width))
        self.layers, self.head = nn.TransformerEncoder(layer, layers), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.words(x) + self.places).mean(1))


class Recurrent(nn.Module):
    """A cell that is called for each element of a sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(32, width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        for place in range(x.shape[1]):
            state = self.cell(x[:, place], state)
        return self.head(state)


def convolution(width: int, out: int, stride: int = 1) -> nn.Module:
    """Return a convolution with its normalisation."""
    return nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out))


def mlp() -> Made:
    """Return a deep and narrow network with dropout, and Adam."""
    layers = [part for _ in range(8) for part in (nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(128, CLASSES)), torch.randn(32, 128), torch.optim.Adam


def resnet() -> Made:
    """Return a residual network for small images, and SGD."""
    blocks = [Residual(16, 16), Residual(16, 32, 2), Residual(32, 32), Residual(32, 64, 2), Residual(64, 64)]
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)
    model = nn.Sequential(convolution(3, 16), nn.ReLU(), *blocks, *ends)
    return model, torch.randn(4, 3, 32, 32), torch.optim.SGD


def encoder() -> Made:
    """Return a small BERT-like encoder of six layers, and AdamW."""
    return Encoder(64, 6, 16), torch.randint(0, 1000, (2, 16)), torch.optim.AdamW


def wide_encoder() -> Made:
    """Return an encoder whose products take much of the time, and AdamW."""
    return Encoder(256, 4, 64), torch.randint(0, 1000, (4, 64)), torch.optim.AdamW


def recurrent() -> Made:
    """Return a recurrent network over twenty elements, and Adam."""
    return Recurrent(64), torch.randn(16, 20, 32), torch.optim.Adam


PROGRAMS: dict[str, Callable[[], Made]] = {
    "mlp": mlp,
    "resnet": resnet,
    "encoder": encoder,
    "wide_encoder": wide_encoder,
    "recurrent": recurrent,
}


def train(name: str, device: str, steps: int) -> list[tuple[float, float]]:
    """Run the program; return the seconds of each step, by the wall and by the thread."""
    torch.manual_seed(0)
    model, x, kind = PROGRAMS[name]()
    model, x = model.to(device), x.to(device)
    y = torch.randint(CLASSES, (x.shape[0],), device=device)
    optimizer = kind(model.parameters(), lr=1e-4)
    ticks = [(perf_counter(), thread_time())]
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        ticks.append((perf_counter(), thread_time()))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(ticks)]


def main() -> None:
    """Run one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--times", type=Path)
    options = parser.parse_args()
    steps = train(options.program, options.device, options.steps)
    if options.times:
        options.times.write_text(json.dumps(steps))


if __name__ == "__main__":
    main()
