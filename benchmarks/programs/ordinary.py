"""Eight ordinary models, trained step by step, in eager mode or with `--compile`.

python benchmarks/programs/ordinary.py vision
python benchmarks/programs/ordinary.py vision --compile
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from common import Stopwatch, Transformer, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


@dataclass
class Task:
    """A model that returns its loss, and the batches that it is trained on in turn."""

    model: nn.Module
    batches: list[tuple[Tensor, ...]]
    learning_rate: float = 1e-4
    autocast: bool = True


Sizes = Callable[[int, int], int]  # (on a GPU, on a CPU) -> the one in use


def language(pick: Sizes) -> Task:
    """A decoder of 8 layers with the vocabulary of GPT-2."""
    vocabulary = pick(50304, 256)
    model = Transformer(vocabulary, pick(768, 32), pick(8, 2), pick(12, 2))
    return Task(model, [(torch.randint(vocabulary, (pick(8, 2), pick(513, 17))),) for _ in range(4)])


class Vision(nn.Module):
    """A vision transformer of the library's encoder layers."""

    def __init__(self, width: int, layers: int, heads: int, image: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.zeros((image // 16) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.1, F.gelu, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return F.cross_entropy(self.head(self.encoder(x).mean(1)), classes)


def vision(pick: Sizes) -> Task:
    """ViT-S at 128 images of 224 × 224."""
    size, count = pick(224, 32), pick(128, 2)
    model = Vision(pick(384, 32), pick(8, 2), pick(6, 2), size)
    return Task(model, [(torch.randn(count, 3, size, size), torch.randint(1000, (count,))) for _ in range(2)])


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        same = channels == out and stride == 1
        shortcut = (nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if same else nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Residual(nn.Module):
    """A residual network with two bottlenecks in each stage."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        stem = (
            nn.Conv2d(3, inner, 7, 2, 3, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, channels = [], inner
        for stage in range(4):
            out = inner * 4 * 2**stage
            blocks.append(Bottleneck(channels, out // 4, out, 1 if stage == 0 else 2))
            blocks.append(Bottleneck(out, out // 4, out, 1))
            channels = out
        self.body = nn.Sequential(*stem, *blocks)
        self.head = nn.Linear(channels, 1000)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.body(images).mean((2, 3))), classes)


def convolutions(pick: Sizes) -> Task:
    """A ResNet in channels last, 96 images of 224 × 224."""
    size, count = pick(224, 32), pick(96, 2)
    model = Residual(pick(64, 8)).to(memory_format=torch.channels_last)
    images = torch.randn(count, 3, size, size).to(memory_format=torch.channels_last)
    return Task(model, [(images, torch.randint(1000, (count,)))])


class Table(nn.Module):
    """A multilayer perceptron over numeric columns."""

    def __init__(self, columns: int, width: int, layers: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Linear(columns, width)]
        for _ in range(layers):
            parts += [nn.BatchNorm1d(width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(width, width)]
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width, 1)

    def forward(self, rows: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.head(self.body(rows)).squeeze(-1), target)


def table(pick: Sizes) -> Task:
    """16,384 rows of 128 columns, 12 layers of width 1,024, in float32."""
    rows, columns = pick(16384, 8), pick(128, 4)
    batches = [(torch.randn(rows, columns), torch.rand(rows).round()) for _ in range(2)]
    return Task(Table(columns, pick(1024, 16), pick(12, 2)), batches, autocast=False)


class Denoising(nn.Module):
    """A block of a UNet: two convolutions behind group norms, modulated by the time, and attention."""

    def __init__(self, channels: int, attends: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(channels, 2 * channels)
        self.norm3 = nn.GroupNorm(8, channels) if attends else None
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        h = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        x = x + self.conv2(F.silu(h))
        return x if self.norm3 is None else x + self.attend(self.norm3(x))

    def attend(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        tokens = self.qkv(x.flatten(2).transpose(1, 2)).unflatten(-1, (3, 4, -1))
        q, k, v = tokens.permute(2, 0, 3, 1, 4).unbind()
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(y).transpose(1, 2).reshape(batch, channels, height, width)


class Diffusion(nn.Module):
    """Three resolutions down and up again; the loss is of the noise that it removes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.begin, self.end = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.down = nn.ModuleList(Denoising(channels, attends=place > 0) for place in range(3))
        self.up = nn.ModuleList(Denoising(channels, attends=place > 0) for place in range(3))
        self.time = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, channels))

    def forward(self, latents: Tensor, noise: Tensor, when: Tensor) -> Tensor:
        half = self.begin.out_channels // 2
        waves = when[:, None] * torch.exp(-torch.arange(half, device=when.device) / half * 9)
        time = self.time(torch.cat([waves.sin(), waves.cos()], -1))
        x, kept = self.begin(latents + when[:, None, None, None] * noise), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for block in reversed(self.up):
            x = block(F.interpolate(x, scale_factor=2.0) + kept.pop(), time)
        return F.mse_loss(self.end(x), noise)


def diffusion(pick: Sizes) -> Task:
    """Latents of 64 × 64 with 256 channels inside, 16 at a time."""
    shape = (pick(16, 2), 4, pick(64, 8), pick(64, 8))
    batch = (torch.randn(shape), torch.randn(shape), torch.rand(shape[0]))
    return Task(Diffusion(pick(256, 16)), [batch])


class Conformer(nn.Module):
    """A layer that listens: half a feed-forward net, attention, a convolution along time, the other half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.first, self.second = (
            nn.Sequential(
                nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
            )
            for _ in range(2)
        )
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.along = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.first(self.norms[0](x))
        q, k, v = self.qkv(self.norms[1](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        along = self.along(F.glu(self.wide(self.norms[2](x))).transpose(1, 2))
        x = x + self.narrow(F.silu(self.norm(along)).transpose(1, 2))
        x = x + 0.5 * self.second(self.norms[3](x))
        return self.norms[4](x)


class Speech(nn.Module):
    """Classifies each frame of a spectrogram."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.begin = nn.Conv1d(80, width, 3, 2, 1)
        self.layers = nn.Sequential(*(Conformer(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, 512)

    def forward(self, frames: Tensor, labels: Tensor) -> Tensor:
        x = self.layers(F.gelu(self.begin(frames)).transpose(1, 2))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def speech(pick: Sizes) -> Task:
    """Ten seconds of 16 speakers through 6 layers of width 384."""
    count, length = pick(16, 2), pick(1000, 20)
    frames, labels = torch.randn(count, 80, length), torch.randint(512, (count, length // 2))
    return Task(Speech(pick(384, 16), pick(6, 2), pick(6, 2)), [(frames, labels)])


class Ranking(nn.Module):
    """A recommender: bags of categories and numbers, their products in pairs, and what a user clicks."""

    def __init__(self, rows: int, features: int, width: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(features))
        self.below = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (features + 1) * features // 2
        self.above = nn.Sequential(
            *(nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
        )
        places = torch.tril_indices(features + 1, features + 1, -1)
        self.register_buffer("places", places)

    def forward(self, numbers: Tensor, categories: Tensor, clicks: Tensor) -> Tensor:
        dense = self.below(numbers)
        bags = [bag(categories[:, place]) for place, bag in enumerate(self.bags)]
        every = torch.stack([dense, *bags], 1)
        pairs = (every @ every.transpose(1, 2))[:, self.places[0], self.places[1]]
        logits = self.above(torch.cat([dense, pairs], 1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, clicks)


def ranking(pick: Sizes) -> Task:
    """8,192 users, 26 features of 20,000 categories."""
    count, rows, features = pick(8192, 8), pick(20000, 50), pick(26, 3)
    batch = (
        torch.randn(count, 13),
        torch.randint(rows, (count, features, 4)),
        torch.rand(count).round(),
    )
    return Task(Ranking(rows, features, pick(64, 8)), [batch], autocast=False)


class Messages(nn.Module):
    """A graph network: edges carry messages that their nodes sum up."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.nodes = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
        for edge, node, norm in zip(self.edges, self.nodes, self.norms, strict=True):
            sent = edge(torch.cat([x[sources], x[targets]], -1))
            summed = torch.zeros_like(x).index_add(0, targets, sent.to(x.dtype))
            x = norm(x + node(torch.cat([x, summed], -1)))
        return F.mse_loss(self.head(x).squeeze(-1), wanted)


def messages(pick: Sizes) -> Task:
    """20,000 nodes with ten edges each."""
    nodes, width = pick(20000, 20), pick(128, 8)
    edges = torch.randint(nodes, (2, 10 * nodes))
    batch = (torch.randn(nodes, width), edges[0], edges[1], torch.randn(nodes))
    return Task(Messages(width, pick(4, 2)), [batch], autocast=False)


TASKS = {
    "language": language,
    "vision": vision,
    "convolutions": convolutions,
    "table": table,
    "diffusion": diffusion,
    "speech": speech,
    "ranking": ranking,
    "messages": messages,
}


def options_of() -> argparse.Namespace:
    parser = arguments(__doc__ or "", steps=400)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--backend", default="inductor")
    return parser.parse_args()


def main() -> None:
    options = options_of()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    task = TASKS[options.task](lambda large, small: small if options.small else large)
    kind = torch.device(options.device).type
    model = task.model.to(options.device).train()
    batches = [tuple(part.to(options.device) for part in batch) for batch in task.batches]
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate, fused=kind == "cuda")
    forward = torch.compile(model, backend=options.backend) if options.compile else model
    watch = Stopwatch()
    for step in range(options.steps):
        with torch.autocast(kind, torch.bfloat16, enabled=task.autocast):
            loss = forward(*batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
