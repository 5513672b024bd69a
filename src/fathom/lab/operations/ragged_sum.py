"""Sum rows of very different lengths, in CUDA C++.

    fathom lab run work-queue dynamic-parallelism

by_number assigns sequences to persistent blocks in advance; work_queue lets blocks take them from a counter.
a_warp_a_row lets one warp walk even the longest row; dynamic_parallelism launches a kernel for it from the
device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fathom.lab import Draw, Source, traffic

THREADS = 256
TABLE, PIECE = 4096, 4  # entries, and codes that are loaded together
SPREAD = 0.75  # standard deviation of the logarithms of the lengths
LONG = 1 << 24  # elements of one row in 8,192; the others have 2,048
kernels = Source(__file__)
children = Source(__file__, "ragged_sum_children", device_runtime=True)


# Sequences of codes for entries of a table
def _lengths(tasks: int, mean: int) -> Tensor:
    """Return lengths that are quantiles of a log-normal distribution, so that every seed has equal work."""
    at = (torch.arange(tasks, dtype=torch.float64) + 0.5) / tasks
    lengths = torch.exp(SPREAD * 2**0.5 * torch.erfinv(2 * at - 1))
    return (lengths * mean / lengths.mean() / PIECE).long() * PIECE


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tasks = draw.size(gpu=1 << 16, cpu=40)
    lengths = _lengths(tasks, draw.size(gpu=1 << 13, cpu=200)).to(draw.device)
    lengths = lengths[draw.uniform(tasks).argsort()]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    codes = draw.integers(0, TABLE, int(starts[-1]), dtype=torch.int32)
    return codes, starts, draw.uniform(TABLE)


def by_number(codes: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    out = table.new_empty(len(starts) - 1)
    kernels.launch("by_number", _blocks(), THREADS, out, codes, starts, table, len(out))
    return out


def _blocks() -> int:
    return 8 * kernels.multiprocessors()


def work_queue(codes: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    """title: Let blocks take tasks from a queue
    pair: {group: schedule, plain: by_number}
    saves: idle multiprocessors while others have long tasks
    idea: Persistent blocks, each with a table in shared memory, must share tasks among themselves. Taking
      every 1,056th gives each the same number of sequences, but not the same work. With a counter in global
      memory, the next task goes to the first block that is free.
    cost: An atomic addition and a barrier per task, hidden if the next task is drawn while the current one is
      added up, and a counter that must be zeroed. The end is as uneven as the last tasks; sorting the longest
      first reduces that.
    not_when: Tasks are alike, or blocks keep no state. A grid with one block per task is the same queue in
      hardware. Codes of two bytes each, since random look-ups then wait for banks of shared memory instead of
      HBM (at most 69 % of its ceiling on an H200).
    shows: {sm__ctas_active.avg.pct_of_peak_sustained_elapsed: falls off towards the end → high until the end}
    tips: [compute.work-queue]
    findings: {kernels-wave-quantisation: 4}
    proof: {reduction: 65536}"""
    out, following = table.new_empty(len(starts) - 1), torch.zeros_like(starts[:1])
    kernels.launch("by_ticket", _blocks(), THREADS, out, codes, starts, table, len(out), following)
    return out


def reference(codes: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    running = torch.nn.functional.pad(table[codes.long()].cumsum(0), (1, 0))
    return running[starts.long()].diff()


work = row_work = traffic(1, 2)  # the sums take as many bytes as the starts


# A few rows of millions of elements among many of a few thousand
def rows(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, many = draw.size(gpu=1 << 18, cpu=8), draw.size(gpu=1 << 13, cpu=8)
    lengths = torch.full((rows,), 2048, device=draw.device)
    lengths[::many] = LONG
    lengths = lengths[draw.uniform(rows).argsort()]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    return draw.uniform(int(starts[-1])), starts


def _sums(kernel: str, out: Tensor, values: Tensor, starts: Tensor) -> Tensor:
    children.launch(kernel, -(-len(out) * 32 // THREADS), THREADS, out, values, starts, len(out))
    return out


def a_warp_a_row(values: Tensor, starts: Tensor) -> Tensor:
    return _sums("a_warp_a_row", values.new_empty(len(starts) - 1), values, starts)


def dynamic_parallelism(values: Tensor, starts: Tensor) -> Tensor:
    """title: Launch kernels from kernels
    pair: {group: schedule, plain: a_warp_a_row, inputs: rows, reference: row_sums, work: row_work}
    saves: idle multiprocessors while one warp walks a long row
    idea: One warp per row is right for rows of a few thousand elements and wrong for the few that have
      millions, which it still walks when all others are done. The warp that meets a long row launches a
      kernel of many blocks for it, without the host, and continues with its own work.
    cost: A launch from the device takes some microseconds, and pending launches take memory. The code is
      relocatable and linked with the device runtime. Blocks add their parts atomically, in no fixed order;
      with one addition per warp instead of per block, an H200 reached 84 % of HBM's ceiling instead of 88.
      The overhead shrinks with the rows. 32 children for rows of 16 MB among short ones of 8 KB reached 88 %,
      twice as many for rows of 64 MB reached 91 %, where a kernel that only reads reaches 94 and 95 %.
    not_when: Rows are alike, or the host knows the long ones. A second kernel for a list of them, or tasks of
      equal length, do the same more simply. Nor with so many children that launching is the bottleneck.
    shows:
      sm__ctas_active.avg.pct_of_peak_sustained_elapsed: a few percent for most of the time → high
      dram__throughput.avg.pct_of_peak_sustained_elapsed: low → near the ceiling hbm
    tips: [scheduling.dynamic-parallelism]
    no_finding: counters average over warps and hide the one with a long row.
    needs: {capability: 9.0, packages: [cuda.bindings]}
    proof: {reduction: 16777216}"""
    # Only on a GPU: kernels on the emulator cannot launch kernels.
    return _sums("with_children", values.new_zeros(len(starts) - 1), values, starts)


def row_sums(values: Tensor, starts: Tensor) -> Tensor:
    running = torch.nn.functional.pad(values.cumsum(0), (1, 0))
    return running[starts.long()].diff()
