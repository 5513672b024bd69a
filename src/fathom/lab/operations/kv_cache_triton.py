"""Attend to a key-value cache in pages, in Triton.

    fathom lab run paged-cache split-keys

masked reads room for the longest request of all; paged_cache reads only filled pages. In whole_sequences one
program reads all pages of a head; split_keys shares them among several.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw

PAGE, SIZE, EACH = 64, 128, 8  # tokens per page, elements per head, pages per program
WARPS, STAGES = 4, 3
Caches = tuple[Tensor, Tensor]
Given = tuple[Tensor, Caches, Caches, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    requests, heads, longest = draw.shape([(256, 3), (8, 2), (4096, 1024)])
    shares = draw.uniform(requests).argsort() + 1  # evenly spread, so that every seed has as many pages
    lengths = (shares * longest // requests).int()
    there = torch.arange(longest // PAGE, device=draw.device) * PAGE < lengths[:, None]
    table = torch.zeros_like(there, dtype=torch.int32)
    table[there] = torch.argsort(draw.uniform(int(there.sum()))).int()
    pools = [draw.normal(int(there.sum()), heads, PAGE, SIZE, dtype=draw.dtype) for _ in range(2)]
    keys, values = (pool[table.long()].transpose(1, 2).flatten(2, 3) for pool in pools)  # as one cache each
    query = draw.normal(requests, heads, 1, SIZE, dtype=draw.dtype)
    return query, (keys, values), (pools[0], pools[1]), table, lengths


def masked(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(caches[0].shape[2], device=query.device) < lengths[:, None]
    return F.scaled_dot_product_attention(query, *caches, attn_mask=there[:, None, None, :])


@triton.jit
def _attend(
    parts, peaks, totals, query, keys, values, table, lengths, heads, pages,
    EACH: tl.constexpr, PAGE: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    request, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at, row, lines = tl.arange(0, SIZE), tl.arange(0, PAGE), tl.arange(0, 16)
    length = tl.load(lengths + request)
    begin, end = part * EACH, tl.minimum(part * EACH + EACH, tl.cdiv(length, PAGE))
    if begin < end:
        # Tensor cores take sixteen lines at least: the same one sixteen times.
        q = tl.load(query + (request * heads + head) * SIZE + at[None, :] + 0 * lines[:, None])
        highest, total = tl.full((16,), float("-inf"), tl.float32), tl.zeros((16,), tl.float32)
        output = tl.zeros((16, SIZE), tl.float32)
        for number in tl.range(begin, end, num_stages=STAGES):
            page = tl.load(table + request * pages + number).to(tl.int64)
            place = ((page * heads + head) * PAGE + row[:, None]) * SIZE + at[None, :]
            k, v = tl.load(keys + place), tl.load(values + place)
            scores = tl.dot(q, tl.trans(k)) * (SIZE**-0.5 * 1.4426950408889634)  # powers of two below
            scores = tl.where(number * PAGE + row[None, :] < length, scores, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, axis=1))
            powers, rescaled = tl.exp2(scores - higher[:, None]), tl.exp2(highest - higher)
            output = tl.dot(powers.to(v.dtype), v, output * rescaled[:, None])
            total, highest = total * rescaled + tl.sum(powers, axis=1), higher
        place, first = (request * heads + head) * tl.num_programs(2) + part + 0 * lines, lines == 0
        tl.store(parts + place[:, None] * SIZE + at[None, :], output, mask=first[:, None])
        tl.store(peaks + place, highest, mask=first)
        tl.store(totals + place, total, mask=first)


@triton.jit
def _combine(
    out, parts, peaks, totals, lengths, heads,
    PARTS: tl.constexpr, TOKENS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    request, head = tl.program_id(0), tl.program_id(1)
    mine, number, at = request * heads + head, tl.arange(0, PARTS), tl.arange(0, SIZE)
    there = number * TOKENS < tl.load(lengths + request)  # parts beyond the sequence's end were not written
    peak = tl.load(peaks + mine * PARTS + number, mask=there, other=float("-inf"))
    share = tl.exp2(peak - tl.max(peak, axis=0))
    total = tl.sum(tl.load(totals + mine * PARTS + number, mask=there, other=0.0) * share, axis=0)
    place = (mine * PARTS + number[:, None]) * SIZE + at[None, :]
    part = tl.load(parts + place, mask=there[:, None], other=0.0)
    tl.store(out + mine * SIZE + at, tl.sum(part * share[:, None], axis=0) / total)


def paged_cache(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    """title: Store keys and values in pages
    pair: {group: framework, plain: masked, reference: masked}
    saves: HBM bandwidth and memory of unused cache
    idea: Requests that are decoded together have different lengths. A cache with room for the longest is read
      in full for all of them, with a mask over the empty part. With pages of a fixed size, each request has
      its own list, and the kernel reads only those. A program reads eight pages of one head and prefetches
      the next page into shared memory while tensor cores multiply this one. A second kernel combines the
      parts, so that the longest request does not run alone at the end.
    cost: A look-up per page, a kernel that supports pages, and a second one for the parts. Bytes fall from
      requests times the longest to the existing tokens, rounded up to pages. The fixed cost of a call matters
      less with more tokens. An H200 reached 92 % of the ceiling with 256 requests of up to 4,096 tokens and
      87 with 128. With pages held in registers it reached 89, and with one program per head and request 55
      where pages reached 76.
    not_when: All requests have about the same length, or there is only one.
    shows:
      dram__bytes_read.sum of the attention: the whole cache → its filled pages
      kernel family of the attention: one with a bias, for the mask → two custom kernels
    tips: [inference.paged-cache]
    findings: {kernels-materialised-mask: 3}
    needs: {packages: [triton]}"""
    return _paged(query, pools, table, lengths, EACH)


def _paged(query: Tensor, pools: Caches, table: Tensor, lengths: Tensor, each: int) -> Tensor:
    """Attend with `each` pages per program; the parts of a head are a power of two."""
    requests, heads, _, _ = query.shape
    shape = (requests, heads, triton.cdiv(table.shape[1], each))
    parts = query.new_empty(*shape, SIZE, dtype=torch.float32)
    peaks, totals = (query.new_empty(shape, dtype=torch.float32) for _ in range(2))
    given = (parts, peaks, totals, query, *pools, table, lengths, heads, table.shape[1])
    _attend[shape](*given, EACH=each, PAGE=PAGE, SIZE=SIZE, STAGES=STAGES, num_warps=WARPS)
    out, tokens = torch.empty_like(query), each * PAGE
    read = (out, parts, peaks, totals, lengths, heads)
    _combine[shape[:2]](*read, PARTS=shape[2], TOKENS=tokens, SIZE=SIZE, num_warps=2)
    return out


def work(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> dict[str, float]:
    tokens = int(lengths.sum())
    return {"bytes": 2 * tokens * query.shape[1] * SIZE * query.element_size()}


def few_requests(seed: int, device: str | None = None) -> Given:
    """Return two long requests, which end at the same token."""
    draw = Draw(seed, device)
    requests, heads, pages = draw.shape([2, (8, 2), (1024, 16)])
    table = draw.uniform(requests * pages).argsort().int().view(requests, pages)
    pools = [draw.normal(requests * pages, heads, PAGE, SIZE, dtype=draw.dtype) for _ in range(2)]
    keys, values = (pool[table.long()].transpose(1, 2).flatten(2, 3) for pool in pools)
    lengths = torch.full((requests,), pages * PAGE, dtype=torch.int32, device=draw.device)
    query = draw.normal(requests, heads, 1, SIZE, dtype=draw.dtype)
    return query, (keys, values), (pools[0], pools[1]), table, lengths


def whole_sequences(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    return _paged(query, pools, table, lengths, table.shape[1])


def split_keys(query: Tensor, caches: Caches, pools: Caches, table: Tensor, lengths: Tensor) -> Tensor:
    """title: Share the keys of a head among several programs (flash-decoding)
    pair: {group: framework, plain: whole_sequences, inputs: few_requests, reference: masked}
    saves: idle multiprocessors, and so HBM bandwidth
    idea: While decoding, each head has one query, so a kernel with one program per head and request has 16
      programs here for over a hundred multiprocessors. With the keys in parts, each program attends to its
      own and keeps the highest score and the sum of its weights, with which a second kernel combines the
      parts exactly.
    cost: A second kernel, and the parts' results in float32, 128 values for each part of 512 tokens.
    not_when: Requests times heads exceed the multiprocessors several times already, or contexts are short.
    shows:
      blocks of the attention: requests × heads → times the parts
      sm__throughput of the attention: a few multiprocessors → all of them
    tips: [inference.split-keys]
    findings: {kernels-low-occupancy: 4}
    needs: {packages: [triton]}"""
    # Dao et al., Flash-Decoding for long-context inference, 2023
    return _paged(query, pools, table, lengths, EACH)
