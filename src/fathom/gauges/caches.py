"""Measure the bandwidth of the L2 cache and of shared memory with kernels that reread the same bytes."""

from __future__ import annotations

from ctypes import c_int32
from math import ceil

from fathom.gauges import cuda
from fathom.gauges.gpu import effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, best
from fathom.machine import Ceiling

THREADS, UNROLL, WORD = 512, 8, 16  # must match kernels/caches.cu
TILE = THREADS * UNROLL * WORD  # bytes per block and pass, from either memory
SHARED_BYTES = 16 * 2**10  # per block
FOOTPRINTS = (1 / 8, 1 / 4, 1 / 2)  # bytes reread, as fractions of the L2 cache
LAUNCH_BYTES = 2**33  # bytes read by one launch, which takes at least a millisecond
BUDGET_S = 1.0


def passes(blocks: int) -> int:
    """Return the number of passes that makes a launch of `blocks` long enough to time."""
    return max(8, ceil(LAUNCH_BYTES / (blocks * TILE)))


def read_bytes(blocks: int, count: int) -> int:
    """Return the bytes that `blocks` read in `count` passes."""
    return blocks * count * TILE


def _l2(job: GaugeJob) -> Ceiling:
    here, results = gpu(), list[Measurement]()
    compiled = cuda.kernel("caches", "read_l2")
    grid = here.blocks(THREADS)
    count = passes(grid)
    for share in FOOTPRINTS:
        tiles = max(2, int(share * here.l2_bytes) // TILE)
        words = here.random(tiles * TILE // 4)
        step = grid % (tiles - 1) + 1
        arguments = (words, c_int32(tiles), c_int32(step), c_int32(count), cuda.sink())
        work = compiled.launcher(grid, THREADS, *arguments)
        pace = effort(job, BUDGET_S / len(FOOTPRINTS))
        at = {"bytes": tiles * TILE, "share_of_l2": share}
        results.append(here.measure(at, work, read_bytes(grid, count), pace))
    return best("l2.read", results)


def _shared(job: GaugeJob) -> Ceiling:
    here = gpu()
    grid = here.blocks(THREADS)
    count = 8 * passes(grid)
    words = here.random(SHARED_BYTES // 4)
    arguments = (words, c_int32(count), cuda.sink())
    work = cuda.kernel("caches", "read_shared").launcher(grid, THREADS, *arguments)
    at = {"bytes_a_block": SHARED_BYTES, "threads": THREADS}
    return best("shared.read", [here.measure(at, work, read_bytes(grid, count), effort(job, BUDGET_S))])


GAUGES = {"l2.read": _l2, "shared.read": _shared}
