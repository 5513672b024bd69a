"""Small programs of several kinds, whose steps the host's pace bounds in part; none is a GPT.

python -m benchmarks.plan.paced PROGRAM [--device cuda] [--steps N] [--times FILE]

`--times` writes the seconds of each step by the wall clock, and by the clock of the thread, which other
load on the machine does not lengthen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter, thread_time
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

CLASSES = 10


class Made(NamedTuple):
    """A model with its input, optimizer, loss and targets; without targets, each sample has a class."""

    model: nn.Module
    x: Tensor
    optimizer: Callable[..., torch.optim.Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    y: Tensor | None = None


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


class Language(nn.Module):
    """A recurrent language model: layers that are one operator for all elements, and a vocabulary."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.words(x))[0]).flatten(0, 1)


class Patches(nn.Module):
    """A vision transformer."""

    def __init__(self, width: int, layers: int, patch: int, patches: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(patches + 1, width))
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.cut(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), patches], 1) + self.places
        return self.head(self.layers(tokens)[:, 0])


class Recommender(nn.Module):
    """Tables of embeddings, and a network that scores them."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.score = nn.Sequential(nn.Linear(tables * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: Tensor) -> Tensor:
        rows = [table(column) for table, column in zip(self.tables, x.unbind(1), strict=True)]
        return self.score(torch.cat(rows, 1)).squeeze(1)


class Graph(nn.Module):
    """A graph network: messages along edges, added up at their ends."""

    def __init__(self, width: int, layers: int, nodes: int, edges: int) -> None:
        super().__init__()
        self.ends = nn.Buffer(torch.randint(nodes, (2, edges)))
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.ends
        for message in self.messages:
            sent = F.silu(message(torch.cat([x[source], x[target]], 1)))
            x = x + torch.zeros_like(x).index_add(0, target, sent)
        return self.head(x)


class Scan(nn.Module):
    """A gated state-space layer, whose state is updated for each element of a sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.decay = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        (entering, gate), kept = self.enter(x).chunk(2, 2), torch.exp(-F.softplus(self.decay(x)))
        state, seen = torch.zeros_like(x[:, 0]), []
        for place in range(x.shape[1]):
            state = kept[:, place] * state + (1 - kept[:, place]) * entering[:, place]
            seen.append(state)
        return self.head((torch.stack(seen, 1) * F.silu(gate)).mean(1))


class Decoder(nn.Module):
    """A decoder that attends to another sequence."""

    def __init__(self, words: int, width: int, layers: int, tokens: int) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.words, self.layers = nn.Embedding(words, width), nn.TransformerDecoder(layer, layers)
        self.memory = nn.Parameter(torch.randn(1, 2 * tokens, width))
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        memory = self.memory.expand(len(x), -1, -1)
        return self.head(self.layers(self.words(x), memory, tgt_mask=mask)).flatten(0, 1)


class UNet(nn.Module):
    """Convolutions down and up again, with the layers of one size joined."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        steps = list(pairwise(widths))
        self.first, self.last = convolution(1, widths[0]), nn.Conv2d(widths[0], 1, 1)
        self.down = nn.ModuleList(convolution(a, b, 2) for a, b in steps)
        self.up = nn.ModuleList(convolution(a + b, a) for a, b in reversed(steps))

    def forward(self, x: Tensor) -> Tensor:
        sizes = [F.relu(self.first(x))]
        for layer in self.down:
            sizes.append(F.relu(layer(sizes[-1])))
        x = sizes.pop()
        for layer in self.up:
            x = F.relu(layer(torch.cat([F.interpolate(x, scale_factor=2), sizes.pop()], 1)))
        return self.last(x)


class Mixer(nn.Module):
    """Products along the places and along the channels in turns, with a norm of groups."""

    def __init__(self, width: int, places: int, layers: int) -> None:
        super().__init__()
        self.along = nn.ModuleList(nn.Linear(places, places) for _ in range(layers))
        self.across = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for along, across, norm in zip(self.along, self.across, self.norms, strict=True):
            x = norm(x + F.silu(along(x)))
            x = x + F.silu(across(x.mT)).mT
        return self.head(x.mean(-1))


class Waves(nn.Module):
    """Two views of a signal through the same dilated convolutions, drawn together if they are alike."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        sizes = [1, *[width] * layers]
        dilated = [nn.Conv1d(a, b, 3, 1, 2**i, 2**i) for i, (a, b) in enumerate(pairwise(sizes))]
        self.layers = nn.Sequential(*(part for layer in dilated for part in (layer, nn.ELU())))

    def forward(self, x: Tensor) -> Tensor:
        first, second = (F.normalize(self.layers(view).mean(-1)) for view in (x, x.flip(-1)))
        return first @ second.T / 0.1


def convolution(width: int, out: int, stride: int = 1) -> nn.Module:
    """Return a convolution with its normalisation."""
    return nn.Sequential(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out))


def mlp() -> Made:
    """Return a deep and narrow network with dropout, and Adam."""
    layers = [part for _ in range(8) for part in (nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1))]
    return Made(nn.Sequential(*layers, nn.Linear(128, CLASSES)), torch.randn(32, 128), torch.optim.Adam)


def resnet() -> Made:
    """Return a residual network for small images, and SGD."""
    blocks = [Residual(16, 16), Residual(16, 32, 2), Residual(32, 32), Residual(32, 64, 2), Residual(64, 64)]
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)
    model = nn.Sequential(convolution(3, 16), nn.ReLU(), *blocks, *ends)
    return Made(model, torch.randn(4, 3, 32, 32), torch.optim.SGD)


def encoder() -> Made:
    """Return a small BERT-like encoder of six layers, and AdamW."""
    return Made(Encoder(64, 6, 16), torch.randint(0, 1000, (2, 16)), torch.optim.AdamW)


def wide_encoder() -> Made:
    """Return an encoder whose products take much of the time, and AdamW."""
    return Made(Encoder(256, 4, 64), torch.randint(0, 1000, (4, 64)), torch.optim.AdamW)


def recurrent() -> Made:
    """Return a recurrent network over twenty elements, and Adam."""
    return Made(Recurrent(64), torch.randn(16, 20, 32), torch.optim.Adam)


def language() -> Made:
    """Return an LSTM with a softmax over a vocabulary, and Adam."""
    x, y = torch.randint(2000, (8, 20)), torch.randint(2000, (8 * 20,))
    return Made(Language(2000, 64), x, torch.optim.Adam, y=y)


def autoencoder() -> Made:
    """Return a convolutional autoencoder, and Adam."""
    down = [nn.Conv2d(1, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU()]
    up = [nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Sigmoid()]
    x = torch.rand(8, 1, 32, 32)
    return Made(nn.Sequential(*down, *up), x, torch.optim.Adam, F.mse_loss, x)


def vision() -> Made:
    """Return a small vision transformer, and AdamW."""
    return Made(Patches(64, 4, 8, 16), torch.randn(4, 3, 32, 32), torch.optim.AdamW)


def recommender() -> Made:
    """Return a recommender with eight tables of embeddings, and Adagrad."""
    x, y = torch.randint(1000, (64, 8)), torch.rand(64)
    return Made(Recommender(8, 1000, 32), x, torch.optim.Adagrad, F.binary_cross_entropy_with_logits, y)


def graph() -> Made:
    """Return a graph network of three layers, and Adam."""
    return Made(Graph(32, 3, 64, 256), torch.randn(64, 32), torch.optim.Adam)


def scan() -> Made:
    """Return a gated state-space layer over 32 elements, and AdamW."""
    return Made(Scan(32), torch.randn(8, 32, 32), torch.optim.AdamW)


def decoder() -> Made:
    """Return a small decoder with cross-attention, and AdamW."""
    x, y = torch.randint(500, (4, 16)), torch.randint(500, (4 * 16,))
    return Made(Decoder(500, 64, 2, 16), x, torch.optim.AdamW, y=y)


def unet() -> Made:
    """Return a small U-Net, and SGD."""
    x = torch.rand(4, 1, 32, 32)
    return Made(UNet((8, 16, 32)), x, torch.optim.SGD, F.mse_loss, x)


def mixer() -> Made:
    """Return a mixer of six layers, and AdamW on lists of parameters."""
    return Made(Mixer(64, 32, 6), torch.randn(4, 64, 32), partial(torch.optim.AdamW, foreach=True))


def waves() -> Made:
    """Return a contrastive network on signals, and RMSprop."""
    return Made(Waves(16, 5), torch.randn(10, 1, 256), torch.optim.RMSprop, y=torch.arange(10))


PROGRAMS: dict[str, Callable[[], Made]] = {
    "mlp": mlp,
    "resnet": resnet,
    "encoder": encoder,
    "wide_encoder": wide_encoder,
    "recurrent": recurrent,
    "language": language,
    "autoencoder": autoencoder,
    "vision": vision,
    "recommender": recommender,
    "graph": graph,
    "scan": scan,
    "decoder": decoder,
    "unet": unet,
    "mixer": mixer,
    "waves": waves,
}


def train(name: str, device: str, steps: int) -> list[tuple[float, float]]:
    """Run the program; return the seconds of each step, by the wall and by the thread."""
    torch.manual_seed(0)
    made = PROGRAMS[name]()
    model, x = made.model.to(device), made.x.to(device)
    y = torch.randint(CLASSES, (x.shape[0],), device=device) if made.y is None else made.y.to(device)
    optimizer = made.optimizer(model.parameters(), lr=1e-4)
    ticks = [(perf_counter(), thread_time())]
    for _ in range(steps):
        optimizer.zero_grad()
        made.loss(model(x), y).backward()
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
