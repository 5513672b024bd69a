"""Decode tokens with a cache of keys and values.

    fathom lab run preallocated-cache

concatenating copies the cache for every token; preallocated_cache writes new rows in place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

TOKENS = 128
Caches = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Caches]:
    draw = Draw(seed, device)
    sizes = (33, 1), (16, 2), (8192, 30), (128, 8)  # 528 sequences and heads: four a multiprocessor
    batch, heads, length, size = (draw.size(gpu=g, cpu=c) for g, c in sizes)
    news = draw.normal(TOKENS, 3, batch, heads, 1, size, dtype=draw.dtype)
    shape = (batch, heads, length, size)
    return news, (draw.normal(*shape, dtype=draw.dtype), draw.normal(*shape, dtype=draw.dtype))


def concatenating(news: Tensor, caches: Caches) -> Tensor:
    (keys, values), outputs = caches, []
    for query, key, value in news:
        keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        outputs.append(F.scaled_dot_product_attention(query, keys, values))
    return torch.stack(outputs)


def preallocated_cache(news: Tensor, caches: Caches) -> Tensor:
    """title: Write the key-value cache in place
    pair: {group: framework, plain: concatenating}
    saves: HBM bandwidth and allocations while decoding
    idea: Concatenating each new key and value to the cache copies the whole cache for every token. A buffer
      of the full length takes the new row in place, and attention reads the filled part. One buffer for keys
      and values takes both rows with one copy.
    cost: Memory for the full length from the start. Copies fall from quadratic to linear in the tokens. The
      rest, a copy of the cache at first and one of a row per token, matters less with longer sequences. With
      a quarter of their bytes and tokens it was a fifth of the time on an H200, which reached 72 % of the
      ceiling.
    not_when: Lengths differ so much that full buffers waste memory (see paged-cache).
    shows:
      copy kernels of aten::cat: two per token and layer, as large as the cache → none
    findings: [kernels-kv-cache-concat]
    proof: {latency: included, cache: warm}"""
    batch, heads, length, size = caches[0].shape
    both, outputs = news.new_empty(2, batch, heads, length + TOKENS, size), []
    both[0, :, :, :length], both[1, :, :, :length] = caches
    for filled, new in enumerate(news, start=length + 1):
        both[:, :, :, filled - 1 : filled] = new[1:]
        keys, values = both[:, :, :, :filled]
        outputs.append(F.scaled_dot_product_attention(new[0], keys, values))
    return torch.stack(outputs)


def work(news: Tensor, caches: Caches) -> dict[str, float]:
    row, rows = sum(cache[:, :, :1].nbytes for cache in caches), caches[0].shape[2]
    return {"bytes": row * sum(range(rows + 1, rows + 1 + TOKENS))}  # read by each token's attention
