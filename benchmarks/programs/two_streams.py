"""Contrastive training of an image tower and a text tower, each on its own stream."""

import argparse
from contextlib import nullcontext
from itertools import pairwise

import torch
from common import Block, Stopwatch, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class ImageTower(nn.Module):
    """Images to unit vectors, by convolutions."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        sizes = (3, width, 2 * width, 4 * width)
        layers = [
            layer
            for before, after in pairwise(sizes)
            for layer in (nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU())
        ]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, out))

    def forward(self, images: Tensor) -> Tensor:
        return F.normalize(self.layers(images), dim=-1)


class TextTower(nn.Module):
    """Tokens to unit vectors, by a transformer."""

    def __init__(self, vocabulary: int, width: int, layers: int, out: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, 8) for _ in range(layers)))
        self.out = nn.Linear(width, out)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.normalize(self.out(self.blocks(self.embedding(tokens)).mean(1)), dim=-1)


def build(options: argparse.Namespace) -> tuple[nn.ModuleList, Tensor, Tensor]:
    if options.small:
        towers, shapes = (ImageTower(8, 32), TextTower(256, 64, 1, 32)), ((8, 3, 32, 32), (8, 16))
    else:
        towers, shapes = (ImageTower(96, 512), TextTower(8192, 512, 6, 512)), ((128, 3, 128, 128), (128, 77))
    images = torch.rand(shapes[0], device=options.device)
    tokens = torch.randint(256, shapes[1], device=options.device)
    return nn.ModuleList(towers).to(options.device), images, tokens


def main() -> None:
    options = arguments(__doc__, steps=400).parse_args()
    torch.manual_seed(0)
    on_gpu = options.device.startswith("cuda")
    towers, images, tokens = build(options)
    side = torch.cuda.Stream() if on_gpu else None
    optimizer = torch.optim.AdamW(towers.parameters(), lr=3e-4, fused=on_gpu)
    watch = Stopwatch()
    for _ in range(options.steps):
        with torch.autocast(torch.device(options.device).type, torch.bfloat16):
            if side is not None:
                side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side) if side is not None else nullcontext():
                text = towers[1](tokens)
            image = towers[0](images)
            if side is not None:
                torch.cuda.current_stream().wait_stream(side)
            scores = image @ text.t() / 0.07
            labels = torch.arange(len(scores), device=scores.device)
            loss = (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
