"""
title: Documents of a packed row as a block mask
saves: time of the tensor cores, and HBM bandwidth of the mask
idea: >-
  Packed rows hold several documents, which must not attend to one another. A dense mask says so pair by
  pair: attention reads a matrix of length by length in every layer, and computes all pairs. FlexAttention
  takes the rule itself, and lists of the tiles in which some pairs are allowed, and of those in which all
  are. Where each tile's first and last document are known, the lists follow from these alone.
cost: >-
  A block mask a batch (from the rule, create_block_mask asks for every pair), which the layers share, and
  compilation at first. Pairs fall from the square of the row's length to the sum of the squares of the
  documents'.
not_when: >-
  Rows hold one document each (is_causal does it), one or two layers use each mask, or documents are about
  as short as a tile of 128.
shows:
  - what: kernel family of the attention
    plain: fmha with a bias, or the math backend
    tuned: triton_flex_attention
  - what: bytes of the mask
    plain: a quarter gigabyte in bf16 for a row of 16384, read by every head of every layer
    tuned: a number for each tile
findings: [kernels-materialised-mask]
needs: {gpu: true, torch: "2.5", packages: [triton]}
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

LAYERS, TILE = 8, 128
Given = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    batch, heads, length, size = (
        draw.size(gpu=g, cpu=c) for g, c in ((1, 1), (16, 2), (8192, 2 * TILE), (64, 16))
    )
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    q, k, v = (draw.normal(batch, heads, length, size, dtype=dtype) for _ in range(3))
    starts = draw.integers(0, draw.size(gpu=768, cpu=40), length) == 0  # of documents, about so long
    return q, k, v, starts.cumsum(0).int()


def _layered(attend: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    for _ in range(LAYERS):
        q = attend(q, k, v)
    return q


def plain(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    return _densely(q, k, v, document)


def _densely(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    at = torch.arange(len(document), device=document.device)
    mask = (at[:, None] >= at) & (document[:, None] == document)
    return _layered(partial(F.scaled_dot_product_attention, attn_mask=mask), q, k, v)


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """How many tiles of each row, and which first; for all batches and heads."""
    order = tiles.int().argsort(dim=1, descending=True, stable=True)
    return tiles.sum(dim=1).int()[None, None], order.int()[None, None]


def _tiles(document: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tiles in which some pairs are allowed, and in which all are; documents come one after the other."""
    first, last = document[::TILE], document[TILE - 1 :: TILE]
    before = torch.ones(len(first), len(first), dtype=torch.bool, device=first.device).tril(-1)
    full = before & (first[None, :] == last[:, None])
    touched = before & (last[None, :] == first[:, None]) | torch.eye(len(first), device=first.device).bool()
    return *_listed(touched & ~full), *_listed(full)


def tuned(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import BlockMask

    def allowed(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (document[query] == document[key])

    blocks = BlockMask.from_kv_blocks(*_tiles(document), BLOCK_SIZE=TILE, mask_mod=allowed)
    return _layered(partial(_compiled(), block_mask=blocks), q, k, v)


def reference(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    return _densely(q, k, v, document)
