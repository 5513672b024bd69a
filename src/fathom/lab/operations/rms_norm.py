"""Divide rows by their root mean square, in CUDA C++.

    fathom lab run fused-launches bulk-copy cluster

fused_launches computes a bias, an activation and a residual before the norm in the same kernel. bulk_copy has
the tensor memory accelerator fetch rows that fit in a block; cluster holds rows of 256 KB in eight blocks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Source, normal, traffic

THREADS = 256
kernels = Source(__file__)
bulk = Source(__file__, "rms_norm_bulk")
clustered = Source(__file__, "rms_norm_cluster")


def reference(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(dim=1, keepdim=True))


# With the activation and the residual before it
ROWS = (1 << 15, 3)  # on a GPU, on a processor
chain_inputs = normal((ROWS, 4096), (4096,), (ROWS, 4096))


def one_by_one(x: Tensor, bias: Tensor, skipped: Tensor) -> Tensor:
    out, rows = torch.empty_like(x), len(x)
    kernels.launch("activated", rows, THREADS, out, x, bias)
    kernels.launch("added", rows, THREADS, out, out, skipped)
    kernels.launch("normalised", rows, THREADS, out, out)
    return out


def fused_launches(x: Tensor, bias: Tensor, skipped: Tensor) -> Tensor:
    """title: Fuse a chain of kernels into one
    pair: {group: schedule, plain: one_by_one, inputs: chain_inputs, reference: chain_reference, work:
      chain_work}
    saves: HBM bandwidth and launches
    idea: Bias and activation, residual, norm. Each kernel reads the result of the one before from HBM. In one
      kernel a block keeps its row in registers from the first operation to the last, and only inputs and
      result pass through HBM.
    cost: Three passes over a tensor instead of seven, and one launch instead of three. The kernel serves only
      this chain, and needs the registers of all its steps at once.
    not_when: The steps need different splits of the work, the intermediate result is needed anyway, or a
      compiler fuses them (see compiled-fusion).
    shows:
      dram__bytes_read.sum + dram__bytes_write.sum: seven times the tensor → three times the tensor
      kernel launches: three → one
    tips: [scheduling.fused-launches]
    findings: {kernels-unfused-elementwise: 2, kernels-unfused-norm: 3}
    proof: {reduction: 4096}"""
    out = torch.empty_like(x)
    kernels.launch("all_at_once", len(x), THREADS, out, x, bias, skipped)
    return out


def chain_reference(x: Tensor, bias: Tensor, skipped: Tensor) -> Tensor:
    mixed = F.gelu(x + bias) + skipped
    return mixed * torch.rsqrt((mixed * mixed).mean(dim=1, keepdim=True))


chain_work = traffic(3, 1)


# Rows that fit in a block
rows = normal(((1 << 16, 50), 2048))
work = traffic(2)


def by_threads(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    bulk.launch("by_threads", len(x), THREADS, out, x, len(x))
    return out


def bulk_copy(x: Tensor) -> Tensor:
    """title: Fetch rows with the tensor memory accelerator
    pair: {group: memory, plain: by_threads, inputs: rows}
    saves: instructions and registers of loads, and the wait for them
    idea: One thread requests a whole row from the accelerator. The row arrives in shared memory and signals a
      barrier. The next five rows are in flight while this one is scaled and stored.
    cost: Shared memory for six rows per block, and persistent blocks. Each takes its next row from a counter,
      since blocks nearer to memory are faster. With equal shares, stored by the accelerator too, they reached
      89 % of the ceiling on an H200 instead of 94 %.
    not_when: Enough blocks already keep HBM busy with plain loads; then this saves only instructions. Rows
      must be aligned to 16 bytes and a multiple of that long.
    shows:
      l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum: none → all bytes read
      smsp__inst_executed_op_global_ld.sum: one per warp and 32 floats → none
    no_gain: H200, where plain loads of enough blocks reach 94.5 % of HBM's ceiling and these 94.2 %. Only
      instructions and registers fall.
    tips: [memory.tma]
    no_finding: nothing is slow in the plain form, which is at the ceiling too.
    needs: {capability: 9.0}"""
    out = torch.empty_like(x)
    following = torch.zeros(1, dtype=torch.int32, device=x.device)
    grid = min(len(x), 4 * bulk.multiprocessors())  # four blocks fit in the shared memory of each
    bulk.launch("by_accelerator", grid, THREADS, out, x, len(x), following)
    return out


# Rows that fit in no block
long_rows = normal(((1 << 11, 2), 65536))


def in_two_kernels(x: Tensor) -> Tensor:
    sums, out = x.new_empty(len(x) * 8), torch.empty_like(x)
    clustered.launch("part_sums", len(x) * 8, THREADS, sums, x)
    clustered.launch("scaled", len(x) * 8, THREADS, out, x, sums)
    return out


def cluster(x: Tensor) -> Tensor:
    """title: Hold a row in a cluster of blocks
    pair: {group: compute, plain: in_two_kernels, inputs: long_rows}
    saves: HBM bandwidth, one read of three passes
    idea: A row of 256 KB fits neither in the shared memory nor in the registers of a multiprocessor, so it is
      read once for its norm and again to be scaled. Eight blocks of a cluster hold it together. They read one
      another's sums through distributed shared memory and scale the parts they hold.
    cost: Two passes instead of three. Two barriers over the cluster, whose blocks must run at the same time.
    not_when: Rows fit in one block, or the second read hits L2 (few rows at a time).
    shows: {dram__bytes_read.sum: up to twice the tensor → once the tensor}
    tips: [memory.cluster]
    no_finding: a second read of a row looks like a read of other data.
    needs: {capability: 9.0}"""
    # Only on a GPU: the emulator has no clusters.
    out = torch.empty_like(x)
    clustered.launch("in_cluster", len(x) * 8, THREADS, out, x)
    return out
