"""Count how often each value occurs, in CUDA C++.

    fathom lab run private-histogram distributed-bins

in_global and many_in_global add every element to its bin in L2. private_histogram counts 256 bins in the
shared memory of each block first; distributed_bins spreads 65,536 bins over the shared memory of a cluster.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fathom.lab import Draw, Source, traffic

BINS, MANY_BINS = 256, 1 << 16
BLOCKS = 2  # of a cluster
kernels = Source(__file__)
cluster = Source(__file__, "histogram_cluster")


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    numbers = draw.normal(draw.size(gpu=1 << 27, cpu=5000), scale=20.0)
    return numbers.add_(128).clamp_(0, BINS - 1).to(torch.uint8)


def reference(x: Tensor) -> Tensor:
    return torch.bincount(x.flatten().int(), minlength=BINS).int()


work = traffic(1)


def _counts(kernel: str, x: Tensor) -> Tensor:
    out = torch.zeros(BINS, dtype=torch.int32, device=x.device)
    kernels.launch(kernel, 8 * kernels.multiprocessors(), 256, out, x, x.numel())
    return out


in_global = partial(_counts, "in_global")


def private_histogram(x: Tensor) -> Tensor:
    """title: Count in shared memory first
    pair: {group: compute, plain: in_global}
    saves: atomic operations in L2
    idea: Atomics on one address are serialised, and a histogram with few bins hits the same addresses from
      the whole chip. Each block counts in its own bins in shared memory and adds them to the result once.
    cost: Atomics in L2 fall from one per element to one per bin and block. Those in shared memory wait for
      one another only within a block.
    not_when: There are more bins than shared memory can hold, or so few elements per block that adding up the
      bins costs more.
    shows:
      lts__t_requests_srcunit_tex_op_red.sum: one per warp and 32 elements, and more → bins times blocks / 32
    tips: [operators.scatter, memory.histograms]
    findings: {kernels-atomics: 2}"""
    return _counts("in_shared", x)


def keys(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.integers(0, MANY_BINS, draw.size(gpu=1 << 28, cpu=1000), dtype=torch.int32)


def many_in_global(keys: Tensor) -> Tensor:
    out = torch.zeros(MANY_BINS, dtype=torch.int32, device=keys.device)
    cluster.launch("in_global", 2 * cluster.multiprocessors(), 1024, out, keys, len(keys) // 4)
    return out


def distributed_bins(keys: Tensor) -> Tensor:
    """title: Spread a histogram over the shared memory of a cluster
    pair: {group: memory, plain: many_in_global, inputs: keys, reference: many_counts, work: many_work}
    saves: atomic operations in L2
    idea: 65,536 bins take 256 KB, more than a block can have, so each key is an atomic addition in L2. Two
      blocks of a cluster each hold half of the bins and count in one another's shared memory. Only a
      cluster's sums go to L2.
    cost: Half of the counts cross to another multiprocessor. All clusters add all their bins at the end, so
      there are only as many clusters as run at once.
    not_when: The bins fit in the 227 KB of one block (see private-histogram), or need clusters of four or
      more. Then three of four counts cross, which was no faster than L2 on an H200. Keys are sorted or few,
      or there are fewer than some hundred per bin and cluster.
    shows:
      lts__t_requests_op_red.sum: one per warp and distinct sector of keys → the bins, once per cluster
    tips: [memory.large-histograms]
    findings: {kernels-atomics: 1}
    needs: {capability: 9.0}"""
    # Only on a GPU: the emulator has no clusters.
    out = torch.zeros(MANY_BINS, dtype=torch.int32, device=keys.device)
    grid = cluster.multiprocessors() // BLOCKS * BLOCKS
    cluster.launch("over_cluster", grid, 1024, out, keys, len(keys) // 4, shared=4 * MANY_BINS // BLOCKS)
    return out


def many_counts(keys: Tensor) -> Tensor:
    return torch.bincount(keys.long(), minlength=MANY_BINS)


def many_work(keys: Tensor) -> dict[str, float]:
    return {"bytes": keys.nbytes + 4 * MANY_BINS}
