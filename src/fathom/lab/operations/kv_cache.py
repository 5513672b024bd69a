"""Decode tokens with a cache of keys and values.

    fathom lab run preallocated-cache grouped-queries quantised-cache

concatenating copies the cache for every token; preallocated_cache writes new rows in place. repeated_heads
copies keys and values for each head of queries; grouped_queries lets the heads of a group share them.
cache_in_full keeps keys and values as they are computed; quantised_cache keeps them in int8.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, normal

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
    tips: [frameworks.hf-generate, inference.preallocated-cache]
    findings: {kernels-kv-cache-concat: 1}
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


# Eight heads of queries for each head of keys
QUERIES = ((16, 2), (64, 16), 1, (128, 16))  # batch, heads, length, size: on a GPU, on a processor
CACHE = ((16, 2), (8, 2), (8192, 64), (128, 16))
grouped = normal(QUERIES, CACHE, CACHE, narrow=True)


def repeated_heads(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    group = queries.shape[1] // keys.shape[1]
    keys, values = (each.repeat_interleave(group, dim=1) for each in (keys, values))
    return F.scaled_dot_product_attention(queries, keys, values)


def grouped_queries(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """title: Let the queries of a group share their keys and values
    pair: {group: framework, plain: repeated_heads, inputs: grouped, work: grouped_work}
    saves: HBM bandwidth of copies of the cache
    idea: In grouped-query attention several heads of queries read the same keys and values. Model code often
      repeats these for each head, because the attention wants as many of both. While decoding there is one
      query a head, and no mask between them, so that the heads of a group can be the rows of one head. The
      cache is read once for all of them, in place.
    cost: Two views. Bytes fall from writing and reading the cache for each head of the group to reading it
      once.
    not_when: Queries have several tokens under a causal mask; then scaled_dot_product_attention takes
      enable_gqa=True, or the kernel of a library.
    shows:
      copy kernels before each attention: two, as large as the cache times the group → none
    tips: [inference.grouped-queries]
    findings: {kernels-repeated-heads: 1}
    proof: {cache: warm}"""
    batch, heads, _, size = queries.shape
    rows = queries.view(batch, keys.shape[1], heads // keys.shape[1], size)
    return F.scaled_dot_product_attention(rows, keys, values).reshape(batch, heads, 1, size)


def grouped_work(queries: Tensor, keys: Tensor, values: Tensor) -> dict[str, float]:
    return {"bytes": keys.nbytes + values.nbytes + 2 * queries.nbytes}


# Decoding with many layers, whose caches are the memory that counts
PROMPT = (8, (8, 2), (8, 2), (4096, 256), (128, 32))  # layers, requests, heads, tokens, size
NEW = 16  # tokens
CODES = 127  # on each side of zero
Coded = tuple[Tensor, Tensor]


def layered(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    """Return queries, keys and values of each new token and layer, and keys and values of a prompt."""
    draw = Draw(seed, device)
    layers, requests, heads, length, size = draw.shape(PROMPT)
    news = draw.normal(NEW, layers, 3, requests, heads, 1, size, dtype=draw.dtype)
    return news, draw.normal(layers, 2, requests, heads, length, size, dtype=draw.dtype)


def cache_in_full(news: Tensor, prompt: Tensor) -> Tensor:
    *sizes, length, size = prompt.shape
    cache = prompt.new_empty(*sizes, length + NEW, size)
    cache[..., :length, :] = prompt
    outputs = torch.empty_like(news[:, :, 0])
    for filled, (token, output) in enumerate(zip(news, outputs, strict=True), start=length + 1):
        for new, known, out in zip(token, cache, output, strict=True):
            known[..., filled - 1 : filled, :] = new[1:]
            keys, values = known[..., :filled, :]
            out[:] = F.scaled_dot_product_attention(new[0], keys, values)
    return outputs


def coded(rows: Tensor) -> Coded:
    """Return the rows in int8, and the scale of each."""
    scale = (rows.float().abs().amax(dim=-1, keepdim=True) / CODES).clamp(min=1e-12)
    return (rows.float() / scale).round_().to(torch.int8), scale


def attended(query: Tensor, keys: Coded, values: Coded) -> Tensor:
    """Return attention over a cache in int8. A scale belongs to a row, so it is applied to its score."""
    scores = (query @ keys[0].to(query.dtype).mT).float() * keys[1].mT * query.shape[-1] ** -0.5
    shares = torch.softmax(scores, dim=-1) * values[1].mT
    return shares.to(query.dtype) @ values[0].to(query.dtype)


def quantised_cache(news: Tensor, prompt: Tensor) -> Tensor:
    """title: Store keys and values in eight bits
    pair: {group: memory, plain: cache_in_full, inputs: layered, work: layered_work}
    saves: memory of the cache, which limits how many requests are decoded together
    idea: The cache of a long context is larger than all else that a request needs. In int8, with a scale for
      each head and token, it takes little more than half of the bytes of bf16. A new token's row is rounded
      once, and no other row changes. Scales are applied to scores and shares, not to the rows.
    cost: Rounding. A small transformer of characters loses less than 0.01 % of its perplexity of 9.8 on text
      that it was not trained on. Here each layer's keys and values are widened in memory for each token,
      which takes longer than attention over full rows; kernels that widen them in registers save time too.
    not_when: The cache is small beside the weights, or the engine has an fp8 cache with its own kernels.
    gains: memory
    shows:
      memory of the cache, per token and layer: two bytes per value → one, and four per head
    tips: [inference.cache-quantise]
    findings: {serving-kv-cache: 1}
    proof: {precision: int8, latency: included, cache: warm}"""
    *sizes, length, size = prompt.shape
    codes = prompt.new_empty(*sizes, length + NEW, size, dtype=torch.int8)
    scales = prompt.new_empty(*sizes, length + NEW, 1, dtype=torch.float32)
    for known, scale, layer in zip(codes, scales, prompt, strict=True):
        known[..., :length, :], scale[..., :length, :] = coded(layer)
    outputs = torch.empty_like(news[:, :, 0])
    for filled, (token, output) in enumerate(zip(news, outputs, strict=True), start=length + 1):
        for new, known, scale, out in zip(token, codes, scales, output, strict=True):
            known[..., filled - 1 : filled, :], scale[..., filled - 1 : filled, :] = coded(new[1:])
            (keys, values), (of_keys, of_values) = known[..., :filled, :], scale[..., :filled, :]
            out[:] = attended(new[0], (keys, of_keys), (values, of_values))
    return outputs


def layered_work(news: Tensor, prompt: Tensor) -> dict[str, float]:
    row, length = prompt[..., :1, :].numel(), prompt.shape[-2]
    return {"bytes": float(row * sum(range(length + 1, length + 1 + NEW)))}  # a byte for each value
