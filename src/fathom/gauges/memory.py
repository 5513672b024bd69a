"""Measure device memory: read, write, copy and triad, at sizes much larger than the caches."""

from __future__ import annotations

from ctypes import c_float, c_int32, c_int64
from functools import partial
from typing import Any

from fathom.gauges import cuda
from fathom.gauges.gpu import MeasuredGpu, Workload, effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.machine import Ceiling
from fathom.units import GIB

THREADS, UNROLL, WORD = 256, 8, 16  # must match kernels/memory.cu
TILE = THREADS * UNROLL * WORD  # bytes per block
SIZES = (GIB, 4 * GIB, 16 * GIB)  # bytes per array
FULL_SIZES = (GIB // 4, GIB // 2, GIB, 2 * GIB, 4 * GIB, 8 * GIB, 16 * GIB)
CACHES = 4  # an array must be at least this many times the L2 cache
STAYING = 16  # blocks per multiprocessor in a grid-stride loop
ARRAYS = {"read": 1, "write": 1, "copy": 2, "triad": 3}  # arrays used; a pass moves the bytes of all
BUDGET_S = 1.5
NO_KERNELS = "through torch's operations: {why}"


def moved(kind: str, size: int) -> int:
    """Return the bytes that one pass over arrays of `size` bytes reads and writes, as STREAM counts them."""
    return ARRAYS[kind] * size


def sizes(wanted: tuple[int, ...], room: int, l2_bytes: int) -> list[int]:
    """Return the sizes in `wanted` that fit into `room` and exceed the caches, else the largest that fits."""
    fitting = [size for size in wanted if CACHES * l2_bytes <= size <= room]
    return fitting or [room // TILE * TILE]


def _measure(kind: str, job: GaugeJob) -> Ceiling:
    here, results = gpu(), list[Measurement]()
    chosen = sizes(FULL_SIZES if job.full else SIZES, here.room() // ARRAYS[kind], here.l2_bytes)
    for size in chosen:
        results += _at(here, kind, size, BUDGET_S / len(chosen), job)
    return best(f"hbm.{kind}", results)


def _at(here: MeasuredGpu, kind: str, size: int, seconds: float, job: GaugeJob) -> list[Measurement]:
    """Measure every way of moving arrays of `size` bytes."""
    arrays = [here.torch.rand(size // 4, device="cuda") for _ in range(ARRAYS[kind])]
    ours, flags = dict[str, Workload](), tuple[str, ...]()
    try:
        ours = _kernels(here, kind, arrays, size)
    except NotHereError as error:
        flags = (NO_KERNELS.format(why=error),)
    ways = {**ours, **_operations(here, kind, arrays)}
    pace = effort(job, seconds / len(ways))
    return [
        here.measure({"bytes": size, "way": way}, work, moved(kind, size), pace, flags)
        for way, work in ways.items()
    ]


def _operations(here: MeasuredGpu, kind: str, arrays: list[Any]) -> dict[str, Workload]:
    torch, to, source = here.torch, arrays[0], arrays[-1]
    works: dict[str, Workload] = {
        "read": lambda: torch.sum(to),
        "write": lambda: to.fill_(0.7),  # a nonzero constant
        "copy": lambda: to.copy_(source),
        "triad": lambda: torch.add(arrays[1], source, alpha=0.5, out=to),
    }
    return {"torch": works[kind]}


def _kernels(here: MeasuredGpu, kind: str, arrays: list[Any], size: int) -> dict[str, Workload]:
    """Return our kernel with a block per tile, and with a grid-stride loop. Raises NotHereError."""
    compiled = cuda.kernel("memory", f"{kind}_words")
    words, tiles = c_int64(size // WORD), size // TILE
    arguments: dict[str, tuple[Any, ...]] = {
        "read": (*arrays, words, cuda.sink()),
        "write": (*arrays, words, c_int32(12345)),
        "copy": (*arrays, words),
        "triad": (*arrays, c_float(0.5), words),
    }
    grids = {"one block per tile": tiles, "striding blocks": min(tiles, STAYING * here.multiprocessors)}
    return {way: compiled.launcher(grid, THREADS, *arguments[kind]) for way, grid in grids.items()}


GAUGES = {f"hbm.{kind}": partial(_measure, kind) for kind in ARRAYS}
