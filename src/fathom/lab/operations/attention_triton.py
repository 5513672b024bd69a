"""Compute causal attention in Triton.

    fathom lab run triton-attention

written_out stores the scores; triton_attention keeps them in registers, a tile at a time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fathom.lab import matmul_unit, normal

LOG2_E = 1.4426950408889634  # the hardware computes powers of two
HEADS = ((4, 1), (16, 2), (4096, 64), (128, 16))  # batch, heads, length, size: on a GPU, on a processor
inputs = normal(HEADS, HEADS, HEADS, narrow=True)


def _shaped(given: dict[str, Any]) -> None:
    """Set the block shapes of the descriptors to the tiles of a candidate."""
    for name, rows in (("out", "M"), ("q", "M"), ("k", "N"), ("v", "N")):
        given[name].block_shape = [given[rows], given["SIZE"]]


def _candidate(m: int, n: int, warps: int, stages: int, registers: int | None = None) -> triton.Config:
    tiles = {"M": m, "N": n}
    return triton.Config(tiles, num_warps=warps, num_stages=stages, maxnreg=registers, pre_hook=_shaped)


# With 128 registers, two programs of eight warps fit on a multiprocessor; a larger tile occupies it alone.
CANDIDATES = [_candidate(128, 64, 8, 2, 128), _candidate(128, 64, 4, 2), _candidate(128, 128, 8, 2)]
if not torch.cuda.is_available():  # tuning takes a device
    CANDIDATES = [_candidate(32, 16, 4, 2)]


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v


@triton.jit
def _over(
    seen, total, best, query, k, v, first, rows, begin, end, scale, N: tl.constexpr, MASKED: tl.constexpr
):
    """Accumulate keys from `begin` to `end` into the running softmax (`seen`, `total`, `best`) of `rows`."""
    for start in range(begin, end, N):
        scores = tl.dot(query, k.load([first + start, 0]).T)
        if MASKED:
            keys = start + tl.arange(0, N)
            scores = tl.where(rows[:, None] >= keys[None, :], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1) * scale)
        powers = tl.exp2(scores * scale - higher[:, None])
        fade = tl.exp2(best - higher)
        total = total * fade + tl.sum(powers, 1)
        seen = seen * fade[:, None]
        seen = tl.dot(powers.to(v.dtype), v.load([first + start, 0]), seen)
        best = higher
    return seen, total, best


@triton.autotune(configs=CANDIDATES, key=["length", "SIZE"])
@triton.jit
def _attention(out, q, k, v, scale, length, M: tl.constexpr, N: tl.constexpr, SIZE: tl.constexpr):
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * M  # the longest rows first, lest one ends alone
    first = tl.program_id(1) * length
    rows = start + tl.arange(0, M)
    query = q.load([first + start, 0])
    best = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    seen = tl.zeros((M, SIZE), tl.float32)
    seen, total, best = _over(seen, total, best, query, k, v, first, rows, 0, start, scale, N, False)
    end = start + M
    seen, total, best = _over(seen, total, best, query, k, v, first, rows, start, end, scale, N, True)
    out.store([first + start, 0], (seen / total[:, None]).to(out.dtype))


def triton_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """title: Write attention in tiles by hand
    pair: {group: compute, plain: written_out}
    saves: HBM bandwidth and memory, both quadratic in the length
    idea: A program keeps a tile of queries and walks over tiles of keys and values, with a running maximum
      and sum per row. Scores live in registers and are never written. Tiles beyond the diagonal of the causal
      mask are skipped, and only those on it are masked. Keys and values arrive by descriptor while the tensor
      cores work. Two programs share a multiprocessor, so that one multiplies while the other computes
      exponentials.
    cost: Autotuning of tiles, warps and stages, some seconds per shape. FLOPs are those of the two products,
      halved by the mask, plus an exponential per element and a rescaling of the sums per tile. Bytes are
      those of q, k, v and the output.
    not_when: A library's kernel takes the shape. cuDNN and FlashAttention 3 also overlap the exponentials of
      one tile with the products of another, and are faster. A kernel by hand pays for custom masks and
      scores.
    shows:
      dram__bytes_write.sum: several times the matrix of scores → the output
      sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed: a few percent → above half
    tips: [operators.fused-attention]
    findings: {kernels-math-attention: 2, kernels-materialised-mask: 5}
    needs: {capability: 9.0, packages: [triton], torch: "2.8"}"""
    length, size = q.shape[-2:]
    out, heads = torch.empty_like(q), q.shape[0] * q.shape[1]
    flat = [TensorDescriptor.from_tensor(tensor.view(-1, size), [1, size]) for tensor in (out, q, k, v)]
    _attention[lambda at: (length // at["M"], heads)](*flat, size**-0.5 * LOG2_E, length, SIZE=size)
    return out


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute head by head, because all scores at once would not fit in double precision."""
    heads = zip(*(tensor.flatten(0, 1).unbind() for tensor in (q, k, v)), strict=True)
    return torch.stack([written_out(*head) for head in heads]).view(q.shape)


def work(q: Tensor, k: Tensor, v: Tensor) -> dict[str, float | str]:
    batch, heads, length, size = q.shape
    return {"flops": 2.0 * batch * heads * length**2 * size, "bytes": 4 * q.nbytes, "unit": matmul_unit(q)}
