"""Shared by all programs here: three options, a stopwatch, and a small transformer."""

import argparse
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


def arguments(description: str, steps: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument("--times", type=Path, help="write the step times to this file, as JSON")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


class Stopwatch:
    """Host time of each step. It never waits for the device: that would change what it measures.

    It makes the file that BEGUN names in the environment, to say that the steps begin.
    """

    def __init__(self) -> None:
        if "BEGUN" in os.environ:
            Path(os.environ["BEGUN"]).touch()
        self.ticks = [time.perf_counter()]

    def lap(self) -> None:
        self.ticks.append(time.perf_counter())

    def save(self, path: Path | None) -> None:
        if path:
            steps = [after - before for before, after in pairwise(self.ticks)]
            total = time.perf_counter() - self.ticks[0]
            path.write_text(json.dumps({"began_s": self.ticks[0], "steps_s": steps, "total_s": total}))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A language model: tokens in, loss out."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
