"""
title: Scratch memory in the order of the stream
saves: host time, and idle time of the device
idea: >-
  cudaMalloc maps pages, and cudaFree waits until the device has done everything before it takes them away.
  A loop that takes scratch memory for each of its steps stops the device each time. cudaMallocAsync and
  cudaFreeAsync take their place in the stream: what is given back is handed to the next step without a
  wait, out of a pool that keeps its pages.
cost: >-
  A microsecond or two a call. The pool keeps what it ever held, if it is told to (the release threshold is
  zero at first: every synchronisation would empty it).
not_when: >-
  A caching allocator is at hand (torch's own is one, and this is for code beside it), or one buffer for all
  steps can be taken beforehand.
shows:
  - what: cudaMalloc and cudaFree calls
    plain: one each a step
    tuned: none
  - what: ledger, idle by allocator
    plain: most of the call
    tuned: next to none
findings: [host-cuda-malloc]
needs: {packages: [cuda.bindings]}
latency: included
cache: warm
reduction: 1024
"""
# Only on a GPU: a processor's memory is in no stream's order.

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from fathom.lab import Draw, Source
from fathom.lab.driver import done, driver

THREADS, BLOCKS = 256, 1024
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.uniform(16, draw.size(gpu=1 << 20, cpu=5000))


def _sums(x: Tensor, take: Callable[[int], int], give: Callable[[int], None]) -> Tensor:
    out = x.new_empty(len(x))
    for number, row in enumerate(x):
        scratch = take(4 * BLOCKS)
        held = ctypes.c_uint64(scratch)
        kernels.launch("in_parts", BLOCKS, THREADS, held, row, len(row))
        kernels.launch("in_parts", 1, THREADS, out[number], held, BLOCKS)
        give(scratch)
    return out


def plain(x: Tensor) -> Tensor:
    cu = driver()
    return _sums(x, lambda size: int(done(cu.cuMemAlloc(size))), lambda at: done(cu.cuMemFree(at)))


@cache
def _keep_pages(device: int) -> None:
    cu = driver()
    pool = done(cu.cuDeviceGetDefaultMemPool(device))
    threshold = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    done(cu.cuMemPoolSetAttribute(pool, threshold, cu.cuuint64_t(2**64 - 1)))


def tuned(x: Tensor) -> Tensor:
    cu, stream = driver(), torch.cuda.current_stream().cuda_stream
    _keep_pages(torch.cuda.current_device())
    return _sums(
        x,
        lambda size: int(done(cu.cuMemAllocAsync(size, stream))),
        lambda at: done(cu.cuMemFreeAsync(at, stream)),
    )


def reference(x: Tensor) -> Tensor:
    return torch.sum(x, dim=1)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": x.nbytes}
