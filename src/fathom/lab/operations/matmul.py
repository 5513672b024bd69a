"""Multiply float32 matrices, in CUDA C++.

    fathom lab run shared-tiling register-tiling async-copy specialised-warps

Each version is the plain form of the next. straight reads both operands from global memory for every product,
shared_tiling shares tiles in a block, register_tiling computes 4 x 4 results per thread, and async_copy loads
the next tile meanwhile. specialised_warps separates copying from computing, for products summed over the
first dimension.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fathom.lab import Source, normal

kernels = Source(__file__)
hopper = Source(__file__, "matmul_hopper")

N = (2048, 128)  # on a GPU, on a processor
inputs = normal((N, N), (N, N))
reference = torch.matmul


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(left) ** 3, "bytes": 3 * left.nbytes, "unit": "vector.fp32"}


def _product(kernel: str, tile: int, threads: int, left: Tensor, right: Tensor) -> Tensor:
    n, out = len(left), left.new_empty(left.shape)
    kernels.launch(kernel, (n // tile, n // tile), (threads, threads), out, left, right, n)
    return out


straight = partial(_product, "straight", 32, 32)


def shared_tiling(left: Tensor, right: Tensor) -> Tensor:
    """title: Share tiles in shared memory
    pair: {group: memory, plain: straight}
    saves: L1 and L2 traffic
    idea: Every element of the operands is used for n results. If each thread reads it from the caches, that
      is n requests. A block that loads a tile into shared memory requests it once for all its threads.
    cost: Loads fall by the edge of the tile, 32 here. Two barriers per tile, and 8 KB of shared memory per
      block.
    not_when: Elements are used only once or twice, or the caches already keep up with the arithmetic. Shared
      memory's own bandwidth is the next bound (see register-tiling).
    shows:
      l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum: two per multiplication of a warp → 1/32 of that
      l1tex__data_pipe_lsu_wavefronts_mem_shared.sum: none → about two per multiplication of a warp
    tips: [memory.shared-tiling]
    no_finding: counters do not show that threads of a block read the same elements."""
    return _product("tiled", 32, 32, left, right)


def register_tiling(left: Tensor, right: Tensor) -> Tensor:
    """title: Compute several results per thread
    pair: {group: compute, plain: shared_tiling}
    saves: shared-memory bandwidth
    idea: A thread with one result reads two values from shared memory per multiplication. With 4 x 4 results
      it reads eight values for sixteen multiplications, and keeps them in registers.
    cost: Reads fall by half the edge of the thread's tile, which needs sixteen registers for sums and eight
      for operands.
    not_when: Tensor cores can do the product (their tiles are far larger), or the result is so small that
      fewer threads leave the chip idle.
    shows:
      l1tex__data_pipe_lsu_wavefronts_mem_shared.sum per FMA: about two → about a half
      sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed: a quarter → above one half
    tips: [compute.register-tiling]
    no_finding: counters do not show that threads could reuse the values they read."""
    return _product("by_registers", 64, 16, left, right)


in_turn = partial(_product, "in_turn", 64, 16)


def async_copy(left: Tensor, right: Tensor) -> Tensor:
    """title: Prefetch tiles with asynchronous copies
    pair: {group: memory, plain: in_turn}
    saves: time in which a block waits for loads
    idea: A block that loads a tile and then uses it waits for HBM or L2 once per tile. cp.async copies the
      next tile into shared memory, bypassing registers, while the block multiplies the current one.
    cost: Twice the shared memory, for two stages. A tile then takes the longer of copy and arithmetic instead
      of their sum. Neither HBM nor FMA is the bound here. With 4 x 4 sums per thread, 80 shared-memory loads
      feed 256 multiplications of a warp, which rules out more than 80 % of vector.fp32. Larger register tiles
      lift that limit (see register-tiling).
    not_when: Enough other blocks on the multiprocessor hide the wait, copies are smaller than 16 bytes, or
      data must be converted on the way. On Hopper, the tensor memory accelerator also saves the instructions.
    shows: {smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active: the largest stall → small}
    tips: [memory.async-copy]
    no_finding: a stall on loads has many causes; a dive shows it, and no rule can identify this one.
    needs: {capability: 8.0}"""
    return _product("ahead", 64, 16, left, right)


# The sum runs along the first dimension of both operands, as in the gradient of a weight
DEPTH = (4096, 72)
transposed_inputs = normal((DEPTH, (4096, 256)), (DEPTH, (4096, 256)))


def transposed_reference(left: Tensor, right: Tensor) -> Tensor:
    return left.t() @ right


def transposed_work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    n = left.shape[1]
    size = left.nbytes + right.nbytes + 4 * n * n
    return {"flops": 2.0 * left.numel() * n, "bytes": size, "unit": "vector.fp32"}


def _transposed_product(kernel: str, threads: int, left: Tensor, right: Tensor) -> Tensor:
    depth, n = left.shape
    out = left.new_empty(n, n)
    hopper.launch(kernel, (n // 128, n // 128), threads, out, left, right, n, depth)
    return out


all_alike = partial(_transposed_product, "all_alike", 256)


def specialised_warps(left: Tensor, right: Tensor) -> Tensor:
    """title: Specialise one warp for copies, the others for arithmetic
    pair: {group: compute, plain: all_alike, inputs: transposed_inputs, reference: transposed_reference, work:
      transposed_work}
    saves: issue slots and barriers of the computing warps
    idea: Where every warp copies and computes, each step costs all of them address arithmetic, copies, and a
      barrier that waits for the slowest. One warp that only requests copies from the accelerator leaves the
      others to compute. A pair of barriers in shared memory per stage lets warps run as far ahead or behind
      as there are stages.
    cost: Warps that add nothing to the sums; setmaxnreg moves most of their registers to the others. Both
      forms use 32 KB of stages.
    not_when: The plain pipeline already keeps the arithmetic busy, as it nearly does here. It pays where
      tensor cores make a step short or loads are irregular. cuBLAS and FlashAttention 3 are built this way on
      Hopper. In Triton 3.6, warp_specialize targets Blackwell.
    shows:
      smsp__inst_executed.sum: copies and their addresses in every warp → fewer
      smsp__average_warps_issue_stalled_barrier_per_issue_active: some → none
    no_gain: H200, 0.80 times as fast in float32. The plain pipeline's copies already hide behind its
      arithmetic (67 % of the vector ceiling), and warps that only copy leave fewer slots to those that
      compute (53 %).
    tips: [compute.specialised-warps]
    no_finding: a barrier stall has many causes; a dive shows it, and no rule can identify this one.
    needs: {capability: 9.0}"""
    return _transposed_product("specialised", 256 + 128, left, right)
