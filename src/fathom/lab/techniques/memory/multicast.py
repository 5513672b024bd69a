"""
title: One read for a cluster of blocks
saves: L2 bandwidth
idea: >-
  In a recurrent layer every block advances a few sequences and needs all weights in every step, 256 KB that
  don't fit beside its state. 112 blocks ask L2 for the same rows at about the same time. Four blocks of a
  cluster fetch a quarter of each tile, and the accelerator delivers it to the shared memory of all four.
cost: >-
  Reads of L2 fall to a quarter; what a multiprocessor takes in stays. A stage may be refilled only when all
  four blocks are done with it, so they keep step, and 32 arrivals cross the cluster a tile. That takes
  longer than a read of one's own, so twelve stages are under way: with two, and with arrivals that released
  all memory to the cluster, it took 2.6 times as long as not sharing.
not_when: >-
  Blocks don't need the same at the same time, L2 is not the bound (more sequences a block use each weight
  more often, where there are enough to fill the chip), or the weights fit into shared memory and stay.
shows:
  - what: lts__t_sectors_op_read.sum
    plain: the weights, once a block and step
    tuned: a quarter of that
  - what: l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum
    plain: as many bytes as L2 reads
    tuned: four times what L2 reads
no_gain: >-
  H200: 0.97 times as fast. L2 serves the blocks in time, since they ask for the same rows at once, and
  keeping step across the cluster costs the rest.
needs: {capability: 9.0}
cache: warm
reduction: 256
"""
# Only on a GPU: the stand-in has no clusters.

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source

WIDTH, SEQUENCES, STEPS, THREADS = 256, 4, 128, 256
SHARED = 208 << 10  # twelve tiles, and what a block adds up
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    given = draw.normal(draw.size(gpu=448, cpu=16), WIDTH)
    return given, draw.normal(WIDTH, WIDTH, scale=0.5 * WIDTH**-0.5)


def _recurred(kernel: str, given: Tensor, weight: Tensor) -> Tensor:
    out = torch.empty_like(given)
    kernels.launch(kernel, len(given) // SEQUENCES, THREADS, out, given, weight, STEPS, shared=SHARED)
    return out


def plain(given: Tensor, weight: Tensor) -> Tensor:
    return _recurred("each_for_itself", given, weight)


def tuned(given: Tensor, weight: Tensor) -> Tensor:
    return _recurred("for_the_cluster", given, weight)


def reference(given: Tensor, weight: Tensor) -> Tensor:
    state = given
    for _ in range(STEPS):
        state = torch.tanh(state @ weight + given)
    return state


def work(given: Tensor, weight: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * STEPS * len(given) * weight.numel(), "unit": "vector.fp32"}
