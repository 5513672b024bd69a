"""Multiply bf16 matrices of shapes that leave multiprocessors idle, in Triton.

    fathom lab run split-k stream-k autotuned-tiles

one_part has too few tiles for the chip, so split_k cuts their sums. a_tile_each has a second wave that is
nearly empty, so stream_k cuts the tiles into equal shares. in_square_tiles pads 16 rows to 128;
autotuned_tiles tries tiles for this shape. On a processor, operands are float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fathom.lab import Draw, matmul_unit, normal

# A small result with long sums
TILE, PARTS = 64, 16
N, LENGTH = (256, 64), (65536, 2048)  # on a GPU, on a processor
inputs = normal((N, LENGTH), (LENGTH, N), narrow=True)
reference = torch.matmul


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    flops = 2.0 * left.numel() * right.shape[1]
    return {"flops": flops, "bytes": 2 * left.nbytes, "unit": matmul_unit(left)}


@triton.jit
def _partial(parts, left, right, n, k, share, SIZE: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    cols = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    part = tl.program_id(2)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(part * share, part * share + share, K):
        depth = start + tl.arange(0, K)
        a = tl.load(left + rows[:, None] * k + depth[None, :])
        b = tl.load(right + depth[:, None] * n + cols[None, :])
        total = tl.dot(a, b, total)
    place = part * n * n + rows[:, None] * n + cols[None, :]
    tl.store(parts + place, total)


def _parts(left: Tensor, right: Tensor, parts: int) -> Tensor:
    n, k = left.shape
    out = torch.empty(parts, n, n, dtype=torch.float32, device=left.device)
    grid = (n // TILE, n // TILE, parts)
    _partial[grid](out, left, right, n, k, k // parts, SIZE=TILE, K=64, num_warps=4, num_stages=4)
    return out


def one_part(left: Tensor, right: Tensor) -> Tensor:
    return _parts(left, right, 1)[0]


def split_k(left: Tensor, right: Tensor) -> Tensor:
    """title: Split a product with long sums
    pair: {group: compute, plain: one_part}
    saves: idle multiprocessors
    idea: A product with a small result has fewer tiles than the chip has multiprocessors, however long its
      sums are. Splitting the sums gives every multiprocessor a part, and a second step adds up the parts.
    cost: Time falls by up to the number of parts, until the chip is full. The parts are written and read once
      in float32 (parts times M N times 8 bytes), with one more launch.
    not_when: The tiles already fill the chip, or the sums are so short that the parts cost more than they
      save.
    shows:
      launch__grid_size / multiprocessors: below one → about one
      sm__ctas_active.avg.pct_of_peak_sustained_elapsed: low → high
    tips: [compute.split-k]
    findings: {kernels-low-occupancy: 3, numbers-tile-size: 2}
    needs: {packages: [triton]}
    proof: {cache: warm}"""
    return _parts(left, right, PARTS).sum(dim=0)


# One tile more than a wave of them
BLOCK, SMALL, K = 128, 32, 64  # tiles on a GPU and on a processor, and a step of the sum
EDGE, DEPTH = (12 * BLOCK, 3 * SMALL), (16384, 512)
tail_inputs = normal((EDGE, DEPTH), (DEPTH, EDGE), narrow=True)


@triton.jit
def _sum(left, right, number, begin, end, n, k, TILE: tl.constexpr, K: tl.constexpr):
    """Return the sum of the steps from `begin` to `end` for tile `number`, and its offsets in the result."""
    rows = (number // (n // TILE) * TILE + tl.arange(0, TILE))[:, None]
    cols = (number % (n // TILE) * TILE + tl.arange(0, TILE))[None, :]
    depth = begin * K + tl.arange(0, K)
    at_left, at_right = left + rows * k + depth[None, :], right + depth[:, None] * n + cols
    total = tl.zeros((TILE, TILE), tl.float32)
    for _ in range(begin, end):
        total = tl.dot(tl.load(at_left), tl.load(at_right), total)
        at_left += K
        at_right += K * n
    return total, rows * n + cols


@triton.jit
def _a_tile_each(out, left, right, n, k, TILE: tl.constexpr, K: tl.constexpr):
    total, place = _sum(left, right, tl.program_id(0), 0, k // K, n, k, TILE, K)
    tl.store(out + place, total)


@triton.jit
def _equal_shares(out, left, right, n, k, full, share, TILE: tl.constexpr, K: tl.constexpr):
    steps, tiles = k // K, (n // TILE) * (n // TILE)
    for number in range(tl.program_id(0), full, tl.num_programs(0)):
        total, place = _sum(left, right, number, 0, steps, n, k, TILE, K)
        tl.store(out + place, total)
    at = full * steps + tl.program_id(0) * share
    end = tl.minimum(at + share, tiles * steps)
    while at < end:
        begin = at % steps
        stop = tl.minimum(begin + end - at, steps)
        total, place = _sum(left, right, at // steps, begin, stop, n, k, TILE, K)
        tl.atomic_add(out + place, total, sem="relaxed")
        at += stop - begin


def _block(x: Tensor) -> int:
    return BLOCK if x.is_cuda else SMALL


def a_tile_each(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out, tile = left.new_empty(n, n, dtype=torch.float32), _block(left)
    grid = ((n // tile) ** 2,)
    _a_tile_each[grid](out, left, right, n, k, TILE=tile, K=K, num_warps=8, num_stages=4)
    return out


def stream_k(left: Tensor, right: Tensor) -> Tensor:
    """title: Split a product into equal shares of steps
    pair: {group: compute, plain: a_tile_each, inputs: tail_inputs, work: float32_work}
    saves: idle multiprocessors in the last wave
    idea: 144 tiles on 132 multiprocessors take two waves, the second of which is nearly empty. Stream-K gives
      every program whole tiles as long as they fill a wave, and splits all steps of the remaining tiles into
      equal shares. A share begins and ends anywhere within a tile, and the parts of a tile are added up.
    cost: Time falls by the empty part of the last wave. Split tiles are added to the result atomically in
      float32, so the result must be zeroed first.
    not_when: There are many waves, or the tiles come out even. The order of additions varies, so results
      differ in the last bits between runs.
    shows:
      launch__waves_per_multiprocessor: a little above one → one
      sm__ctas_active.avg.pct_of_peak_sustained_elapsed: about half → most of the time
    tips: [compute.stream-k]
    findings: {kernels-wave-quantisation: 2}
    needs: {packages: [triton]}"""
    n, k = left.shape
    out, tile, places = left.new_zeros(n, n, dtype=torch.float32), _block(left), 4
    if left.is_cuda:
        places = torch.cuda.get_device_properties(left.device).multi_processor_count
    tiles = (n // tile) ** 2
    full = tiles // places * places
    share = triton.cdiv((tiles - full) * (k // K), places)
    _equal_shares[(places,)](out, left, right, n, k, full, share, TILE=tile, K=K, num_warps=8, num_stages=4)
    return out


def float32_work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    size = 2 * left.nbytes + 4 * len(left) ** 2
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": size, "unit": matmul_unit(left)}


# A few rows times a large weight
linear = torch.nn.functional.linear
SQUARE = triton.Config({"M": 128, "N": 128, "K": 64}, num_warps=8, num_stages=3)
SIZES = [(16, 32, 128), (16, 64, 128), (16, 64, 256), (16, 128, 128), (32, 64, 128), (64, 64, 64)]
NARROW = [
    triton.Config({"M": m, "N": n, "K": k}, num_warps=4, num_stages=stages)
    for m, n, k in SIZES
    for stages in (3, 5)
]


def few_rows(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    n, k = draw.size(gpu=131072, cpu=128), draw.size(gpu=8192, cpu=128)
    return draw.normal(16, k, dtype=draw.dtype), draw.normal(n, k, dtype=draw.dtype, scale=k**-0.5)


@triton.jit
def _product(out, x, weight, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    there, total = rows[:, None] < m, tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        depth = start + tl.arange(0, K)
        deep = depth < k
        a = tl.load(x + rows[:, None] * k + depth[None, :], mask=there & deep[None, :], other=0.0)
        b = tl.load(weight + cols[None, :] * k + depth[:, None], mask=deep[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out + rows[:, None] * n + cols[None, :], total, mask=there)  # n is a multiple of N


# Trying takes a device; one candidate is taken as it is.
_fixed = triton.autotune(configs=[SQUARE], key=["m", "n", "k"])(_product)
_tried = triton.autotune(configs=NARROW if torch.cuda.is_available() else NARROW[:1], key=["m", "n", "k"])(
    _product
)


def _run(kernel: Any, x: Tensor, weight: Tensor) -> Tensor:
    (m, k), n = x.shape, len(weight)
    out = x.new_empty(m, n)
    kernel[lambda at: (triton.cdiv(m, at["M"]), n // at["N"])](out, x, weight, m, n, k)
    return out


def in_square_tiles(x: Tensor, weight: Tensor) -> Tensor:
    return _run(_fixed, x, weight)


def autotuned_tiles(x: Tensor, weight: Tensor) -> Tensor:
    """title: Autotune the tiles of a Triton kernel
    pair: {group: framework, plain: in_square_tiles, inputs: few_rows, reference: linear, work: linear_work}
    saves: time lost to tiles that do not suit the shape
    idea: Tiles that are best for a large square product multiply 128 rows where there are 16 and reserve
      accumulators for all of them. With few columns they also leave most multiprocessors idle. The best
      sizes, warps and stages depend on shape and chip. triton.autotune tries a list for each new shape and
      remembers the best.
    cost: Each candidate is compiled and run for some milliseconds, once per shape and process (cache_results
      keeps the choice on disk). Here 16 rows meet the 131,072 words of an output layer, bound by reading the
      weights. With 8,192 columns the best tiles are 1.9 times as fast as the square ones on an H200, but at
      63 % of the ceiling; a kernel that only reads these 128 MiB reaches 73 %.
    not_when: Shapes change all the time, like the lengths of sequences (make the key coarser, or choose by a
      rule), or the fixed sizes were tuned for this shape.
    shows:
      tensor-core operations: eight times those needed → those needed
      dram throughput of the weights' reads: below the ceiling → nearer to it
    tips: [frameworks.triton-autotune]
    findings: {kernels-low-occupancy: 5, numbers-tile-size: 3}
    needs: {packages: [triton]}"""
    return _run(_tried, x, weight)


def linear_work(x: Tensor, weight: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": weight.nbytes, "unit": matmul_unit(x)}
