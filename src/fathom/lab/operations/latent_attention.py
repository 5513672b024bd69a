"""Decode with latent attention: a cache of one latent vector per token, and a part with its position.

    fathom lab run latent-attention

expanded computes each head's keys and values from the latent vectors for every step; latent_attention lets
all heads attend to the latent vectors themselves.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, matmul_unit

Ups = tuple[Tensor, Tensor]  # of each head: to keys (heads, size, rank), to values (heads, rank, size)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Ups]:
    """Return the queries of one token per request, the cache, and the matrices from it to keys and values.

    A query ends with its rotated part, as each row of the cache does; the rest of a row is latent.
    """
    draw = Draw(seed, device)
    requests, heads, length = draw.shape([(8, 2), (128, 8), (4096, 256)])
    size, rank, rotated = draw.shape([(128, 32), (512, 64), (64, 16)])
    up_keys = draw.normal(heads, size, rank, dtype=draw.dtype, scale=rank**-0.5)
    up_values = draw.normal(heads, rank, size, dtype=draw.dtype, scale=rank**-0.5)
    queries = draw.normal(requests, heads, size + rotated, dtype=draw.dtype)
    return queries, draw.normal(requests, length, rank + rotated, dtype=draw.dtype), (up_keys, up_values)


def expanded(queries: Tensor, cache: Tensor, ups: Ups) -> Tensor:
    (up_keys, up_values), heads = ups, queries.shape[1]
    latent, rotated = cache.unsqueeze(1).tensor_split([up_values.shape[1]], dim=-1)
    keys = torch.cat([latent @ up_keys.mT, rotated.expand(-1, heads, -1, -1)], dim=-1)
    return F.scaled_dot_product_attention(queries.unsqueeze(2), keys, latent @ up_values).squeeze(2)


def latent_attention(queries: Tensor, cache: Tensor, ups: Ups) -> Tensor:
    """title: Attend to the latent vectors of the cache themselves
    pair: {group: framework, plain: expanded}
    saves: products and memory traffic of the keys and values of all heads, for every step
    idea: A head's key is a matrix times a latent vector that all heads share. Its product with a query is
      that of the latent vector with the query times the matrix, so the matrix is applied to one query instead
      of all tokens. Likewise, shares weigh latent vectors, and their sum is turned into a value. The heads
      are then the rows of one head, whose keys are the rows of the cache.
    cost: Rows of the cache are longer than a head's keys (576 instead of 192 values on a GPU), so scores take
      three times the arithmetic, on 128 rows that fill matrix units.
    not_when: Many tokens are read at once, as in a prefill; then expanding the keys once is less arithmetic.
    shows:
      products per step of the matrices from latent vectors: one per token of the cache → one per request
    tips: [inference.latent-attention]
    no_finding: Expanded keys and values look like the products of any other layer.
    proof: {cache: warm}"""
    # DeepSeek-AI, DeepSeek-V2, 2024 (section 2.1, appendix C)
    (up_keys, up_values), size = ups, ups[0].shape[1]
    own, rotated = queries.tensor_split([size], dim=-1)
    absorbed = torch.cat([torch.einsum("bhs,hsr->bhr", own, up_keys), rotated], dim=-1)
    scores = (absorbed @ cache.mT) * queries.shape[-1] ** -0.5
    sums = torch.softmax(scores, dim=-1) @ cache[..., : up_values.shape[1]]
    return torch.einsum("bhr,hrs->bhs", sums, up_values).contiguous()


def work(queries: Tensor, cache: Tensor, ups: Ups) -> dict[str, float | str]:
    requests, heads, _ = queries.shape
    each = cache.shape[2] + ups[1].shape[1]  # of the scores, and of the sums
    attention = 2.0 * heads * each * cache.shape[0] * cache.shape[1]
    flops = attention + 2.0 * requests * sum(up.numel() for up in ups)
    moved = float(cache.nbytes + 2 * queries.nbytes + sum(up.nbytes for up in ups))
    return {"flops": flops, "bytes": moved, "unit": matmul_unit(queries)}
