"""The model of `ranking.py`: embeddings of hashed names, products of pairs, a cross and a deep network."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

SINGLE, DENSE, EVENTS = 28, 13, 64  # names and counts of an impression, events of a user before it
OF_EVENT, COUNTRY = (1, 2, 3), 4  # the tables of an event's item, shop and category, and of countries
PATCH = (8, 512)  # patches of a photograph and values of each
FIELDS = SINGLE + len(OF_EVENT) + 1  # the photograph is the last one
HALF_LIFE = 72.0  # hours


@dataclass(frozen=True)
class Size:
    batch: int
    rows: tuple[int, ...]  # of each table
    width: int  # of an embedding
    encoder: int
    blocks: int
    deep: tuple[int, ...]

    @property
    def offsets(self) -> list[int]:
        """Where each table begins in the one that holds them all."""
        return [0, *accumulate(self.rows)][:-1]

    def columns(self) -> tuple[list[int], list[int]]:
        """Rows and offset of the table of every column: single names, then the events part by part."""
        tables = [*range(SINGLE), *(table for table in OF_EVENT for _ in range(EVENTS))]
        return [self.rows[table] for table in tables], [self.offsets[table] for table in tables]

    def dense(self, fault: str) -> int:
        """Numbers of an impression; zeros make their width, with embeddings and pairs, a round one."""
        return DENSE if fault == "width" else 16

    def features(self, fault: str) -> int:
        return FIELDS * self.width + FIELDS * (FIELDS - 1) // 2 + self.dense(fault)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.widen(self.norm(x))))


class Encoder(nn.Module):
    """A photograph's patches, quantised to bytes, to one vector; trained elsewhere."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.stem = nn.Linear(PATCH[1], size.encoder)
        self.blocks = nn.Sequential(*(Block(size.encoder) for _ in range(size.blocks)))

    def forward(self, patches: Tensor) -> Tensor:
        values = patches.to(self.stem.weight.dtype) / 128 - 1
        return self.blocks(self.stem(values)).mean(1)


def products(fields: Tensor) -> Tensor:
    """Of each field with each, of (batch, fields, width)."""
    return fields @ fields.mT


def pairwise_products(fields: Tensor) -> Tensor:
    return (fields[:, :, None] * fields[:, None]).sum(-1)


class Ranker(nn.Module):
    def __init__(self, size: Size, fault: str) -> None:
        super().__init__()
        features = size.features(fault)
        self.table = nn.Parameter(0.01 * torch.randn(sum(size.rows), size.width))
        self.photograph = nn.Linear(size.encoder, size.width)
        self.cross = nn.ModuleList(nn.Linear(features, features) for _ in range(3))
        widths = (features, *size.deep)
        layers = (nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, size.deep, strict=False))
        self.deep = nn.Sequential(*layers)
        self.heads = nn.Linear(features + size.deep[-1], 2)
        self.products = pairwise_products if fault == "interactions" else products
        self.register_buffer("starts", starts(size.batch))
        below = torch.ones(FIELDS, FIELDS, dtype=torch.bool).tril(-1)
        self.register_buffer("pairs", below.flatten().nonzero().flatten())

    def forward(self, ids: Tensor, hours: Tensor, dense: Tensor, photographs: Tensor) -> Tensor:
        """Logits of (batch, 2)."""
        photograph = self.photograph(photographs)
        pooled = self.pooled(ids, hours).to(photograph.dtype)
        fields = torch.cat([pooled, photograph[:, None]], 1)
        pairs = self.products(fields).to(fields.dtype).flatten(1).index_select(1, self.pairs)
        x = torch.cat([fields.flatten(1), pairs, dense.to(fields.dtype)], 1)
        crossed = x
        for layer in self.cross:
            crossed = torch.addcmul(crossed, x, layer(crossed))
        return self.heads(torch.cat([crossed, self.deep(x)], 1))

    def pooled(self, ids: Tensor, hours: Tensor) -> Tensor:
        """Embeddings of single names, and sums over events, which fade with time: (batch, fields, width)."""
        fading = torch.exp2(hours / -HALF_LIFE)
        weights = torch.cat([fading.new_ones(len(ids), SINGLE), fading.repeat(1, len(OF_EVENT))], 1)
        bags = F.embedding_bag(
            ids.flatten(), self.table, self.starts, mode="sum", per_sample_weights=weights.flatten()
        )
        return bags.view(len(ids), FIELDS - 1, -1)


def starts(batch: int) -> Tensor:
    """Where the bag of each field of each impression begins among all ids."""
    sizes = torch.tensor([*[1] * SINGLE, *[EVENTS] * len(OF_EVENT)]).repeat(batch)
    return sizes.cumsum(0) - sizes
