"""Compute one result per element, bound by memory, in CUDA C++.

    fathom lab run wide-loads no-aliases streaming-hints l2-persistence

Each technique has its own computation. wide_loads converts int8 weights to float32, no_aliases evaluates a
polynomial, streaming_hints scales and shifts rows, and l2_persistence adds a table to samples.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fathom.lab import Draw, Source, normal, traffic
from fathom.lab.driver import done, driver

wide = Source(__file__, "wide_loads")
pointers = Source(__file__, "no_aliases")
hints = Source(__file__, "streaming_hints")
persistence = Source(__file__, "l2_persistence")


# Weights of eight bits become float32
SCALE = 0.03125


def weights(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.integers(0, 256, draw.size(gpu=1 << 29, cpu=4096), dtype=torch.uint8)


def _widened(kernel: str, each: int, threads: int, x: Tensor) -> Tensor:
    out = torch.empty_like(x, dtype=torch.float32)
    wide.launch(kernel, -(-x.numel() // (each * threads)), threads, out, x, SCALE, x.numel())
    return out


one_each = partial(_widened, "one_each", 1, 256)


def wide_loads(x: Tensor) -> Tensor:
    """title: Wide loads and stores
    pair: {group: memory, plain: one_each, inputs: weights, reference: dequantised, work: dequantising}
    saves: issue slots, and bytes in flight per request
    idea: A load of one byte per lane brings 32 bytes with an instruction that could bring 512. Bandwidth is
      bytes in flight divided by latency. A multiprocessor has a fixed number of requests in flight, so wider
      ones keep more bytes in flight.
    cost: Requests fall by the width; sectors stay the same. Addresses must be aligned, and odd sizes need a
      tail. More is not better. On an H200, two words per thread were faster than four or eight, and words of
      16 bytes, which lanes must exchange before the stores, were slower.
    not_when: The kernel is already at the ceiling. Coalesced loads of 4 bytes with enough warps in flight
      usually are, so float32 streams gain little. Registers for the vectors can reduce occupancy.
    shows:
      smsp__inst_executed_op_global_ld.sum: one per warp and 32 weights → a quarter of that
      dram__throughput.avg.pct_of_peak_sustained_elapsed: below the tuned form → near the ceiling hbm
    tips: [memory.wide-loads]
    no_finding: counters show the result, low bandwidth, but not that loads are narrow."""
    return _widened("four_each", 4 * 2, 512, x)


def dequantised(x: Tensor) -> Tensor:
    return (x.double() - 128) * SCALE


dequantising = traffic(5)


# A polynomial
THREADS, EACH, TERMS = 256, 16, 4

polynomial_inputs = normal(((1 << 27, 1 << 13),), (TERMS,))
polynomial_work = traffic(2)


def _evaluated(kernel: str, x: Tensor, factors: Tensor) -> Tensor:
    out = x.new_empty(len(x))
    pointers.launch(kernel, len(x) // (THREADS * EACH), THREADS, out, x, factors, EACH)
    return out


may_alias = partial(_evaluated, "may_alias")


def no_aliases(x: Tensor, factors: Tensor) -> Tensor:
    """title: Declare pointers that do not alias
    pair: {group: memory, plain: may_alias, inputs: polynomial_inputs, reference: polynomial, work:
      polynomial_work}
    saves: repeated loads, and the wait for each
    idea: A store through one pointer may change the data behind another, so the compiler reloads everything
      after it and starts no load before it. `__restrict__` on all pointers, and `const` on those that are
      only read, lets it keep values in registers, move loads ahead of stores, and use the read-only path.
    cost: Registers for the values kept. A broken promise gives wrong results silently.
    not_when: A thread stores once, at its end, or the kernel's arguments really overlap.
    shows:
      smsp__inst_executed_op_global_ld.sum: five per result → little more than one
      smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active: the largest stall → smaller
    tips: [memory.restrict]
    no_finding: counters show repeated loads, but not that aliasing causes them.
    proof: {reduction: 4}"""
    return _evaluated("are_apart", x, factors)


def polynomial(x: Tensor, factors: Tensor) -> Tensor:
    total = x * 0
    for factor in factors.flip(0):
        total = total * x + factor
    return total


# Rows times a row of factors plus a row of shifts
rows = normal(((132 * 72, 5), 20480), (20480,), (20480,))


def as_usual(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    out, grid = torch.empty_like(x), 2 * hints.multiprocessors()
    hints.launch("as_usual", grid, 512, out, x, scale, shift, len(x))
    return out


def streaming_hints(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """title: Keep streams out of the caches
    pair: {group: memory, plain: as_usual, inputs: rows, reference: scaled, work: scaling}
    saves: L1 hits of reused data
    idea: A stream that is read once takes lines in L1 like all other data and evicts data that is reused,
      here a row of factors and one of shifts, 160 KB per row of 80 KB. Loads that allocate no line leave them
      in place. Otherwise each row reads them from L2, twice its own bytes.
    cost: None but the hint, unless the data is reused after all. Stores marked to be evicted first made it
      slower on an H200, 88 % of the ceiling instead of 90 %.
    not_when: The reused data fits in L1 beside the stream, or is far larger and misses either way. A table
      with random look-ups is such a case. Both forms took the same time on an H200.
    shows: {l1tex__t_sector_hit_rate.pct: lower → higher}
    no_gain: H200, where both forms reach 92 % of HBM's ceiling. Rows that L1 lost come from L2 while HBM is
      the bottleneck.
    tips: [memory.streaming-hints]
    findings: {kernels-l2-thrash: 2}"""
    out = torch.empty_like(x)
    hints.launch("streaming", 2 * len(x), 512, out, x, scale, shift)
    return out


def scaled(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return x * scale + shift


scaling = traffic(2, 1, 1)


# A table added to each sample
ENTRIES = (5 << 20, 64)  # on a GPU, on a processor
samples = normal(((16, 3), ENTRIES), (ENTRIES,))


def plainly_added(x: Tensor, table: Tensor) -> Tensor:
    return _added(x, table)


def _added(x: Tensor, table: Tensor) -> Tensor:
    out, words = torch.empty_like(x), len(table) // 4
    persistence.launch("added", (-(-words // (256 * 4)), len(x)), 256, out, x, table, words)
    return out


@cache
def _stream(size: int) -> Any:
    """Set aside `size` bytes of L2; return a new stream, so that other work does not inherit its window."""
    cu, number = driver(), torch.cuda.current_device()
    most = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE
    size = min(size, int(done(cu.cuDeviceGetAttribute(most, number))))
    done(cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, size))
    return torch.cuda.Stream()


def _keep(stream: Any, table: Tensor) -> None:
    cu = driver()
    window, value = cu.CUaccessPolicyWindow(), cu.CUstreamAttrValue()
    window.base_ptr, window.num_bytes, window.hitRatio = table.data_ptr(), table.nbytes, 1.0
    window.hitProp = cu.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
    window.missProp = cu.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
    value.accessPolicyWindow = window
    attribute = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    done(cu.cuStreamSetAttribute(stream.cuda_stream, attribute, value))


def l2_persistence(x: Tensor, table: Tensor) -> Tensor:
    """title: Keep a table in L2
    pair: {group: memory, plain: plainly_added, inputs: samples, reference: with_table, work: adding}
    saves: HBM bandwidth, through L2 hits of reused data
    idea: A table of 20 MB is added to each of 16 samples. Between two uses of an entry, 40 MB of samples pass
      through L2 and evict it, so it comes from HBM every time. A window of the stream's access policy marks
      the table as persisting and everything else as streaming, in a part of L2 that is set aside.
    cost: Up to a third of the time saved (two passes instead of three). The reserved part of L2 is missing to
      all other work until the limit is reset. Hits survive the flush before a cold call.
    not_when: The table is small (recent use keeps it), larger than the part that can be set aside, or the
      loop can be reordered so that a block keeps its part of the table in registers for all samples, which is
      better still.
    shows:
      dram__bytes_read.sum: up to twice the samples → the samples and one table
      lts__t_sector_hit_rate.pct: lower → higher
    tips: [memory.l2-persistence]
    findings: {kernels-l2-thrash: 1}
    needs: {capability: 8.0, packages: [cuda.bindings]}"""
    # Only on a GPU: a processor's caches have no access policy.
    here, stream = torch.cuda.current_stream(), _stream(table.nbytes)
    _keep(stream, table)
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        out = _added(x, table)
    here.wait_stream(stream)
    out.record_stream(here)
    return out


def with_table(x: Tensor, table: Tensor) -> Tensor:
    return x + table


adding = traffic(2, 1)
