"""
title: A key-value cache that is written in place
saves: HBM bandwidth and allocations while decoding
idea: >-
  Concatenating each new key and value to the cache copies the whole cache for every token. A buffer of the
  full length takes the new row in place, and attention looks at the part that is filled.
cost: >-
  Memory for the full length from the start. Copies fall from quadratic to linear in the tokens.
not_when: >-
  Lengths differ so much that full buffers waste memory: pages of a fixed size keep both.
shows:
  - what: copy kernels of aten::cat
    plain: two a token and layer, as large as the cache
    tuned: none
findings: [kernels-kv-cache-concat]
latency: included
cache: warm
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

TOKENS = 32
Caches = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Caches]:
    draw = Draw(seed, device)
    sizes = (16, 1), (16, 2), (4096, 30), (128, 8)
    batch, heads, length, size = (draw.size(gpu=g, cpu=c) for g, c in sizes)
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    news = draw.normal(TOKENS, 3, batch, heads, 1, size, dtype=dtype)
    shape = (batch, heads, length, size)
    return news, (draw.normal(*shape, dtype=dtype), draw.normal(*shape, dtype=dtype))


def plain(news: Tensor, caches: Caches) -> Tensor:
    (keys, values), outputs = caches, []
    for query, key, value in news:
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        outputs.append(F.scaled_dot_product_attention(query, keys, values))
    return torch.stack(outputs)


def tuned(news: Tensor, caches: Caches) -> Tensor:
    length, outputs = caches[0].shape[2], []
    keys, values = (F.pad(cache, (0, 0, 0, TOKENS)) for cache in caches)
    for number, (query, key, value) in enumerate(news, start=length):
        keys[:, :, number : number + 1], values[:, :, number : number + 1] = key, value
        filled = slice(0, number + 1)
        outputs.append(F.scaled_dot_product_attention(query, keys[:, :, filled], values[:, :, filled]))
    return torch.stack(outputs)


def work(news: Tensor, caches: Caches) -> dict[str, float]:
    return {"bytes": TOKENS * sum(cache.nbytes for cache in caches)}
