"""Sum the rows of a matrix, in CUDA C++.

    fathom lab run coalescing warp-reduction aligned-middle stream-ordered

by_thread gives each row to a thread, whose neighbours read a row away; coalescing gives it to a warp. For
long rows, by_tree adds up in shared memory and warp_reduction by shuffles. byte_by_byte reads rows of bytes
singly and aligned_middle in words of 16. stream_ordered and allocating differ in how they allocate scratch
memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from fathom.lab import Draw, Source, uniform
from fathom.lab.driver import done, driver

THREADS, WARP, BLOCKS = 256, 32, 1024
kernels = Source(__file__)


def reference(x: Tensor) -> Tensor:
    return torch.sum(x, dim=1)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": x.nbytes + 4 * len(x)}


def _sums(kernel: str, threads_per_row: int, x: Tensor, *sizes: int) -> Tensor:
    out = x.new_empty(len(x), dtype=torch.int32 if x.dtype == torch.uint8 else x.dtype)
    kernels.launch(kernel, -(-len(x) * threads_per_row // THREADS), THREADS, out, x, *sizes)
    return out


# Short rows, many of them
short_rows = uniform((1 << 20, 70), 256)


def by_thread(x: Tensor) -> Tensor:
    return _sums("by_thread", 1, x, *x.shape)


def coalescing(x: Tensor) -> Tensor:
    """title: Let neighbouring lanes read neighbouring addresses
    pair: {group: memory, plain: by_thread, inputs: short_rows}
    saves: HBM and L1 bandwidth, in sectors of 32 bytes
    idea: A warp's request is served in sectors of 32 bytes. Lanes that each read one float from 32 different
      rows touch 32 sectors for 128 bytes; lanes that read along a row touch 4. So a warp takes a row and adds
      up its parts at the end.
    cost: Time is sectors times 32 bytes divided by bandwidth. The plain form requests eight times the
      sectors, unless L1 still has the rest of each when the next column is read. The tuned form adds five
      shuffles per row.
    not_when: Rows have only a few elements (let several lanes share a row), or the rows of a block stay in
      L1.
    shows: {l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum per request: 32 sectors → 4 sectors}
    tips: [memory.coalescing]
    findings: {kernels-uncoalesced: 1}
    proof: {reduction: 256}"""
    return _sums("by_warp", WARP, x, *x.shape)


# Long rows
long_rows = uniform((1 << 17, 3), 2048)


def by_tree(x: Tensor) -> Tensor:
    return _sums("by_tree", THREADS, x, x.shape[1])


def warp_reduction(x: Tensor) -> Tensor:
    """title: Sum by warp shuffles
    pair: {group: compute, plain: by_tree, inputs: long_rows}
    saves: barriers and shared-memory traffic
    idea: A tree in shared memory halves the active threads at each level, with a barrier between levels.
      Lanes of a warp exchange registers directly. Five shuffles add up 32 values, and one barrier joins the
      warps.
    cost: One barrier instead of eight, and n / 32 instead of 2 n accesses to shared memory.
    not_when: The reduction is a small part of the kernel, or a library does it (CUB, torch.sum).
    shows: {smsp__average_warps_issue_stalled_barrier_per_issue_active: the largest stall → small}
    no_gain: H200, as fast as the tree. Both read at 93 % of HBM's ceiling, which hides the tree's barriers.
    tips: [memory.atomics-scope, compute.shuffles]
    no_finding: a barrier stall has many causes; a dive shows it, and no rule can identify this one.
    proof: {reduction: 2048}"""
    return _sums("by_shuffles", THREADS, x, x.shape[1])


# Rows of bytes that start at any alignment
def byte_rows(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.integers(0, 256, draw.size(gpu=1 << 19, cpu=17), 4095, dtype=torch.uint8)


def byte_by_byte(x: Tensor) -> Tensor:
    return _sums("byte_by_byte", WARP, x, *x.shape)


def aligned_middle(x: Tensor) -> Tensor:
    """title: Wide loads from rows that start at any alignment
    pair: {group: memory, plain: byte_by_byte, inputs: byte_rows, reference: in_integers}
    saves: issue slots, and bytes in flight per request
    idea: Rows of 4095 bytes start at every alignment, and a load of 16 bytes must be aligned. So the few
      bytes before the first multiple of 16 and after the last are read singly, and all others in words of 16
      bytes.
    cost: A sixteenth of the requests, plus two short loads per row in which most lanes are idle.
    not_when: You choose the layout. A pitch that is a multiple of 16 bytes needs no special cases (torch
      aligns tensors to 512 bytes, not their rows). Rows of a few dozen bytes are nearly all head and tail.
    shows:
      smsp__inst_executed_op_global_ld.sum: one per warp and 32 bytes → one per warp and 512 bytes, and two
        per row
      dram__throughput.avg.pct_of_peak_sustained_elapsed: far below the tuned form → near the ceiling hbm
    tips: [memory.alignment]
    no_finding: counters show the result, low bandwidth, but not that loads are narrow."""
    return _sums("aligned_middle", WARP, x, *x.shape)


def in_integers(x: Tensor) -> Tensor:
    parts = x.split(1 << 16)  # torch converts a whole tensor to int64 before it adds it up
    return torch.cat([torch.sum(part, dim=1, dtype=torch.int64) for part in parts])


# A few very long rows, with scratch memory for each
few_rows = uniform(16, (1 << 20, 5000))


def _in_parts(x: Tensor, take: Callable[[int], int], give: Callable[[int], None]) -> Tensor:
    out = x.new_empty(len(x))
    for number, row in enumerate(x):
        scratch = take(4 * BLOCKS)
        place = ctypes.c_uint64(scratch)
        kernels.launch("in_parts", BLOCKS, THREADS, place, row, len(row))
        kernels.launch("in_parts", 1, THREADS, out[number], place, BLOCKS)
        give(scratch)
    return out


def allocating(x: Tensor) -> Tensor:
    cu = driver()
    return _in_parts(x, lambda size: int(done(cu.cuMemAlloc(size))), lambda at: done(cu.cuMemFree(at)))


@cache
def _keep_pages(device: int) -> None:
    cu = driver()
    pool = done(cu.cuDeviceGetDefaultMemPool(device))
    threshold = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    done(cu.cuMemPoolSetAttribute(pool, threshold, cu.cuuint64_t(2**64 - 1)))


def stream_ordered(x: Tensor) -> Tensor:
    """title: Allocate scratch memory in stream order
    pair: {group: memory, plain: allocating, inputs: few_rows}
    saves: host time and GPU idle time
    idea: cudaMalloc maps pages, and cudaFree first waits for the device to finish all work. A loop that
      allocates scratch memory per step therefore stops the device each time. cudaMallocAsync and
      cudaFreeAsync are ordered in the stream. The next step reuses freed memory without a wait, from a pool
      that keeps its pages.
    cost: A microsecond or two per call. The pool keeps all memory that it ever had, if the release threshold
      is raised (by default it is zero, and every synchronisation empties the pool).
    not_when: A caching allocator is available (torch has one; this is for code beside it), or one buffer can
      serve all steps.
    shows:
      cudaMalloc and cudaFree calls: one each per step → none
      ledger, idle by allocator: most of the call → next to none
    tips: [allocation.stream-ordered]
    findings: {host-cuda-malloc: 1}
    needs: {packages: [cuda.bindings]}
    proof: {latency: included, cache: warm, reduction: 1024}"""
    # Only on a GPU: a processor's memory has no stream order.
    cu, stream = driver(), torch.cuda.current_stream().cuda_stream
    _keep_pages(torch.cuda.current_device())
    return _in_parts(
        x,
        lambda size: int(done(cu.cuMemAllocAsync(size, stream))),
        lambda at: done(cu.cuMemFreeAsync(at, stream)),
    )
