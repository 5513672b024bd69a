"""
title: Keys and values in pages, read as far as they go
saves: HBM bandwidth and memory of cache that holds nothing
idea: >-
  Requests that are decoded together have different lengths. A cache with room for the longest is read in
  full for all of them, with a mask over what is empty. In pages of a fixed size, each request has a list of
  its own, and the kernel reads no more than those.
cost: >-
  A look-up a page, and a kernel that knows of pages. Bytes fall from requests times the longest to the
  tokens there are, rounded up to pages.
not_when: >-
  All requests have about one length, there is one request, or there are so few requests and heads that one
  program for each leaves multiprocessors idle, or the longest runs alone at the end (32 requests of 8 heads
  on an H200 took 1.2 times as long so): then split the sequences too.
shows:
  - what: dram__bytes_read.sum of the attention
    plain: the cache in full
    tuned: its filled pages
  - what: kernel family of the attention
    plain: one with a bias, for the mask
    tuned: one of its own
findings: [kernels-materialised-mask]
needs: {packages: [triton]}
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

PAGE, SIZE = 64, 128
Caches = tuple[Tensor, Tensor]
Given = tuple[Tensor, Caches, Caches, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    requests, heads, longest = (draw.size(gpu=g, cpu=c) for g, c in ((128, 3), (8, 2), (2048, 256)))
    dtype = torch.bfloat16 if draw.device == "cuda" else torch.float32
    pages = longest // PAGE
    pools = [draw.normal(requests * pages, heads, PAGE, SIZE, dtype=dtype) for _ in range(2)]
    table = torch.argsort(draw.uniform(requests * pages)).view(requests, pages).int()
    lengths = draw.whole(1, longest + 1, requests).int()
    keys, values = (_in_full(pool, table) for pool in pools)
    query = draw.normal(requests, heads, 1, SIZE, dtype=dtype)
    return query, (keys, values), (pools[0], pools[1]), table, lengths


def _in_full(pool: Tensor, table: Tensor) -> Tensor:
    """The same as one cache: requests, heads, positions, size."""
    return pool[table.long()].transpose(1, 2).flatten(2, 3).contiguous()


def _masked(query: Tensor, caches: Caches, lengths: Tensor) -> Tensor:
    there = torch.arange(caches[0].shape[2], device=query.device) < lengths[:, None]
    return F.scaled_dot_product_attention(query, *caches, attn_mask=there[:, None, None, :])


def plain(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    return _masked(query, caches, lengths)


@triton.jit
def _attend(out, query, keys, values, table, lengths, heads, pages, PAGE: tl.constexpr, SIZE: tl.constexpr):
    request, head = tl.program_id(0), tl.program_id(1)
    at, row = tl.arange(0, SIZE), tl.arange(0, PAGE)
    mine = (request * heads + head) * SIZE + at
    q = tl.load(query + mine).to(tl.float32) * (SIZE**-0.5 * 1.4426950408889634)  # powers of two below
    length = tl.load(lengths + request)
    highest, total, found = float("-inf"), 0.0, tl.zeros((SIZE,), tl.float32)
    for number in range(tl.cdiv(length, PAGE)):
        page = tl.load(table + request * pages + number).to(tl.int64)
        place = ((page * heads + head) * PAGE + row[:, None]) * SIZE + at[None, :]
        k, v = tl.load(keys + place).to(tl.float32), tl.load(values + place)  # both are under way at once
        scores = tl.where(number * PAGE + row < length, tl.sum(k * q[None, :], axis=1), float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        powers, rescaled = tl.exp2(scores - higher), tl.exp2(highest - higher)
        found = found * rescaled + tl.sum(v.to(tl.float32) * powers[:, None], axis=0)
        total, highest = total * rescaled + tl.sum(powers, axis=0), higher
    tl.store(out + mine, found / total)


def tuned(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    requests, heads, _, _ = query.shape
    out = torch.empty_like(query)
    given = (out, query, *pools, table, lengths, heads, table.shape[1])
    _attend[(requests, heads)](*given, PAGE=PAGE, SIZE=SIZE, num_warps=4, num_stages=3)
    return out


def reference(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    return _masked(query, caches, lengths)


def work(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> dict[str, float]:
    tokens = int(lengths.sum())
    return {"bytes": 2 * tokens * query.shape[1] * SIZE * query.element_size()}
