"""Advance a recurrent layer many steps, in CUDA C++.

    fathom lab run multicast

In each_for_itself every block reads all weights from L2 in every step; in multicast four blocks share the
reads.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fathom.lab import Draw, Source

WIDTH, SEQUENCES, STEPS, THREADS = 256, 4, 128, 256
SHARED = 208 << 10  # bytes, for twelve tiles and a block's partial sums
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    given = draw.normal(draw.size(gpu=448, cpu=16), WIDTH)
    return given, draw.normal(WIDTH, WIDTH, scale=0.5 * WIDTH**-0.5)


def _recurred(kernel: str, given: Tensor, weight: Tensor) -> Tensor:
    out = torch.empty_like(given)
    kernels.launch(kernel, len(given) // SEQUENCES, THREADS, out, given, weight, STEPS, shared=SHARED)
    return out


each_for_itself = partial(_recurred, "each_for_itself")


def multicast(given: Tensor, weight: Tensor) -> Tensor:
    """title: Multicast reads to a cluster of blocks
    pair: {group: memory, plain: each_for_itself}
    saves: L2 bandwidth
    idea: In a recurrent layer every block advances a few sequences and needs all weights in every step, 256
      KB that do not fit beside its state. 112 blocks request the same rows from L2 at about the same time.
      Four blocks of a cluster each fetch a quarter of a tile, and the accelerator delivers it to the shared
      memory of all four.
    cost: L2 reads fall to a quarter; each multiprocessor still receives as much. A stage can be refilled only
      when all four blocks are done with it, so they run in step, and 32 arrivals cross the cluster per tile.
      That takes longer than a read by one block, so twelve stages are in flight. With two, and with arrivals
      that released all memory to the cluster, it took 2.6 times as long as without sharing.
    not_when: Blocks do not need the same data at the same time, L2 is not the bottleneck (more sequences per
      block use each weight more often), or the weights fit in shared memory.
    shows:
      lts__t_sectors_op_read.sum: the weights, once per block and step → a quarter of that
      l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum: as many bytes as L2 reads → four times as many
    no_gain: H200, 0.97 times as fast. L2 keeps up because the blocks request the same rows at once, and
      running in step across the cluster costs more than is saved.
    tips: [memory.multicast]
    no_finding: L2 reads that blocks could share look like any other L2 reads.
    needs: {capability: 9.0}
    proof: {cache: warm, reduction: 256}"""
    # Only on a GPU: the emulator has no clusters.
    return _recurred("for_the_cluster", given, weight)


def reference(given: Tensor, weight: Tensor) -> Tensor:
    state = given
    for _ in range(STEPS):
        state = torch.tanh(state @ weight + given)
    return state


def work(given: Tensor, weight: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * STEPS * len(given) * weight.numel(), "unit": "vector.fp32"}
