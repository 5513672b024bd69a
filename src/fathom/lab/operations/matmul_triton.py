"""Multiply large matrices in bf16, in Triton.

    fathom lab run pipelined-matmul descriptor-matmul persistent-matmul

in_small_tiles waits for every load; pipelined_matmul uses large tiles and loads ahead. by_pointers computes
addresses in all threads, descriptor_matmul loads tiles by descriptor. persistent_matmul keeps one program per
multiprocessor, for products with short sums. On a processor, operands are float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fathom.lab import matmul_unit, normal

N = (8192, 192)  # on a GPU, on a processor
inputs = normal((N, N), (N, N), narrow=True)
reference = torch.matmul
TILE = {"M": 128, "N": 256, "K": 64, "GROUP": 8}


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    size = 2 * left.nbytes + left.element_size() * len(left) ** 2
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": size, "unit": matmul_unit(left)}


@triton.jit
def _matmul(
    out, left, right, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    number, columns = tl.program_id(0), tl.cdiv(n, N)
    first = number // (GROUP * columns) * GROUP  # programs go down GROUP rows of tiles, then to the right
    height = tl.minimum(tl.cdiv(m, M) - first, GROUP)
    inner = number % (GROUP * columns)
    rows = (first + inner % height) * M + tl.arange(0, M)
    cols, depth = inner // height * N + tl.arange(0, N), tl.arange(0, K)
    # Rows beyond the end wrap around, which costs less than a mask in every step; k is a multiple of K.
    at_left = left + (rows % m)[:, None].to(tl.int64) * k + depth[None, :]
    at_right = right + depth[:, None].to(tl.int64) * n + (cols % n)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        total = tl.dot(tl.load(at_left), tl.load(at_right), total)
        at_left += K
        at_right += K * n
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(out + rows[:, None].to(tl.int64) * n + cols[None, :], total, mask=inside)


def _product(left: Tensor, right: Tensor, tile: tuple[int, int, int], group: int, **how: int) -> Tensor:
    (m, k), n = left.shape, right.shape[1]
    out = left.new_empty(m, n)
    grid = (triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1]),)
    _matmul[grid](out, left, right, m, n, k, M=tile[0], N=tile[1], K=tile[2], GROUP=group, **how)
    return out


def in_small_tiles(left: Tensor, right: Tensor) -> Tensor:
    return _product(left, right, (64, 64, 32), 1, num_warps=4, num_stages=1)


def pipelined_matmul(left: Tensor, right: Tensor) -> Tensor:
    """title: Use large tiles and load ahead of the tensor cores
    pair: {group: compute, plain: in_small_tiles}
    saves: tensor-core time lost to waiting, and L2 bandwidth
    idea: Tiles of 128 by 256 use each loaded element two to four times as often as tiles of 64 by 64, and let
      Triton issue Hopper's warpgroup product (wgmma). With three stages in shared memory, the next tiles
      arrive while the current ones are multiplied. Neighbouring programs share rows, which L2 then serves.
    cost: A tile's arithmetic intensity is M N / (M + N). Shared memory is stages times (M + N) K times 2
      bytes, here 147 KB, so that one program occupies a multiprocessor.
    not_when: The result has fewer tiles than the chip has multiprocessors (see split-k). cuBLAS is faster
      than either form.
    shows: {sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed: a third or less → above 70 %}
    tips: [operators.tile-sizes, compute.tensor-cores, compute.large-tiles]
    findings: {numbers-tile-size: 1, kernels-tensor-cores-idle: 3}
    needs: {packages: [triton]}"""
    return _product(left, right, (128, 256, 64), 8, num_warps=8, num_stages=3)


@triton.jit
def _place(number, n, M: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr):
    """Return row and column of tile `number`, counted down GROUP rows of tiles, then to the right."""
    columns = n // N
    first = number // (GROUP * columns) * GROUP
    height = tl.minimum(n // M - first, GROUP)
    inner = number % (GROUP * columns)
    return (first + inner % height) * M, inner // height * N


@triton.jit
def _by_pointers(
    out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    row, column = _place(tl.program_id(0), n, M, N, GROUP)
    rows, cols, depth = row + tl.arange(0, M), column + tl.arange(0, N), tl.arange(0, K)
    at_left = left + rows[:, None].to(tl.int64) * k + depth[None, :]
    at_right = right + depth[:, None].to(tl.int64) * n + cols[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        total = tl.dot(tl.load(at_left), tl.load(at_right), total)
        at_left += K
        at_right += K * n
    tl.store(out + rows[:, None].to(tl.int64) * n + cols[None, :], total)


@triton.jit
def _by_descriptor(
    out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    row, column = _place(tl.program_id(0), n, M, N, GROUP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        total = tl.dot(left.load([row, start]), right.load([start, column]), total)
    out.store([row, column], total.to(out.dtype))


LENGTH = (8192, 128)
long_sums = normal(((8192, 256), LENGTH), (LENGTH, (8192, 256)), narrow=True)


def _tiles(n: int) -> int:
    return (n // TILE["M"]) * (n // TILE["N"])


def by_pointers(left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out = left.new_empty(n, n)
    _by_pointers[(_tiles(n),)](out, left, right, n, k, **TILE, num_warps=8, num_stages=4)
    return out


def _described(kernel: Any, programs: int, stages: int, left: Tensor, right: Tensor) -> Tensor:
    n, k = left.shape
    out, shapes = left.new_empty(n, n), ("MN", "MK", "KN")
    described = [
        TensorDescriptor.from_tensor(tensor, [TILE[edge] for edge in shape])
        for tensor, shape in zip((out, left, right), shapes, strict=True)
    ]
    kernel[(programs,)](*described, n, k, **TILE, num_warps=8, num_stages=stages)
    return out


def descriptor_matmul(left: Tensor, right: Tensor) -> Tensor:
    """title: Load tiles by descriptor
    pair: {group: compute, plain: by_pointers, inputs: long_sums}
    saves: address arithmetic and registers beside the tensor cores
    idea: With pointers, every thread computes the addresses of its part of each tile, keeps them in registers
      and issues the copies. With a descriptor, one thread names a tile and the tensor memory accelerator
      fetches it, with bounds checks and swizzling, so that warps do little but issue products.
    cost: A descriptor of 128 bytes per operand, built on the host at each call. Tiles of 128 by 256 by 64
      take 48 KB per stage.
    not_when: Rows are not a multiple of 16 bytes, elements are gathered, or the product is small. cuBLAS is
      faster still, since it specialises warps and shares tiles in clusters.
    shows:
      smsp__inst_executed.sum: copies and addresses beside the products → a fraction of that
      sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed: lower → above 80 %
    no_gain: H200, where the plain form already runs this shape at 99 % of cuBLAS; by descriptor it took 1.04
      times as long.
    tips: [compute.descriptors]
    findings: {kernels-tensor-cores-idle: 2}
    needs: {capability: 9.0, packages: [triton], torch: "2.8"}"""
    return _described(_by_descriptor, _tiles(len(left)), 4, left, right)


@triton.jit
def _persistent(
    out, left, right, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    tiles = (n // M) * (n // N)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = _place(number, n, M, N, GROUP)
        total = tl.zeros((M, N), tl.float32)
        for start in range(0, k, K):
            total = tl.dot(left.load([row, start]), right.load([start, column]), total)
        out.store([row, column], total.to(out.dtype))


SHORT = (512, 128)
short_sums = normal(((8192, 512), SHORT), (SHORT, (8192, 512)), narrow=True)


def one_program_per_tile(left: Tensor, right: Tensor) -> Tensor:
    return _described(_by_descriptor, _tiles(len(left)), 3, left, right)


def persistent_matmul(left: Tensor, right: Tensor) -> Tensor:
    """title: Keep one program per multiprocessor
    pair: {group: compute, plain: one_program_per_tile, inputs: short_sums}
    saves: the start and end of each tile, when tensor cores wait
    idea: A grid of one program per tile starts and ends thousands of programs. The first loads of each wait
      for HBM or L2, and its result is written before the next begins. A persistent program walks over its
      tiles in one flat loop, which loads the next tile while this one is multiplied and writes results
      behind.
    cost: Shared memory for a tile of the result beside the stages, and a fixed assignment of tiles, so one
      late program delays the end.
    not_when: Sums are long, which makes start and end a small part. Other work shares the chip, where the
      hardware scheduler spreads programs better. Nested loops, which begin each tile anew, took 1.14 times as
      long as one program per tile on an H200.
    shows:
      launch__grid_size: the number of tiles → the number of multiprocessors
      sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed: lower → higher
    tips: [compute.persistent]
    findings: {kernels-wave-quantisation: 1}
    needs: {capability: 9.0, packages: [triton], torch: "2.8"}"""
    places = torch.cuda.get_device_properties(left.device).multi_processor_count if left.is_cuda else 3
    return _described(_persistent, min(places, _tiles(len(left))), 3, left, right)
