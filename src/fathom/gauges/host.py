"""Measure the host: bandwidths of memory and caches over all cores, matrix products, and an op's dispatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from fathom.gauges.catalogue import HOST_DTYPES
from fathom.gauges.gpu import Workload, effort
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.gauges.timer import sample, timed
from fathom.machine import Ceiling, memory_bytes, read_cpu

CACHES = 4  # an array is this many times the last-level cache, as STREAM requires
SMALLEST, LARGEST = 2**26, 2**31  # bytes per array
SHARE = 1 / 8  # share of the memory that one array may take
ARRAYS = {"read": 1, "copy": 2, "triad": 3}  # arrays used; one pass moves the bytes of all of them
BLOCK = 2**22  # random numbers, repeated to fill an array: generating more takes longer than measuring
SIZES, FULL_SIZES = (256, 2048), (256, 1024, 2048, 4096, 8192)
SMALL_SIZES, SMALL_S = (32, 64, 128), 0.03  # products of small layers: far below the ceiling
TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp64": "float64"}
BUDGET_S = 0.6
LONGEST_S = 1.0  # longest time for one product


def last_level_bytes(cpu: Mapping[str, Any]) -> int:
    """Return the total bytes of the processor's last-level caches; 0 if the kernel does not report them."""
    caches = [cache for cache in cpu["caches"] if cache["size_bytes"] and cache["shared_by"]]
    if not caches:
        return 0
    last = max(caches, key=lambda cache: cache["name"])  # L1d < L2 < L3
    return int(last["size_bytes"] * max(1, (cpu["logical_cores"] or 1) // last["shared_by"]))


def footprints(cpu: Mapping[str, Any], using: int) -> list[int]:
    """Return bytes that fit into half of the L2 caches of `using` cores, and that need the last level.

    One size if there is no larger last level; none if the kernel does not report the caches.
    """
    second = [c["size_bytes"] for c in cpu["caches"] if c["name"] == "L2" and c["size_bytes"]]
    if not second:
        return []
    near = using * second[0] // 2
    return [near, 8 * near] if last_level_bytes(cpu) >= 16 * near else [near]


def array_bytes(cache_bytes: int, memory_bytes: int | None) -> int:
    """Return the size of one array in bytes: much larger than the caches and much smaller than memory."""
    wanted = min(max(CACHES * cache_bytes, SMALLEST), LARGEST)
    return min(wanted, int(SHARE * memory_bytes)) if memory_bytes else wanted


def cores() -> int:
    """Return the number of cores that this process may use, by affinity and by the control group's quota."""
    info = read_cpu()
    usable, quota = info["usable_cores"] or 1, info["quota_cores"]
    return max(1, min(usable, round(quota))) if quota else usable


@cache
def _torch() -> Any:
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(cores())
    torch.manual_seed(0)
    return torch


def _array(size: int) -> Any:
    """Return `size` bytes of random floats, first written by all threads so that pages are local to them."""
    torch = _torch()
    block = torch.rand(min(BLOCK, size // 4))
    rows = max(1, size // 4 // len(block))
    array = torch.empty(rows, len(block)).fill_(0.5)
    array.copy_(block.expand_as(array))
    return array.view(-1)


def _memory(kind: str, job: GaugeJob) -> Ceiling:
    torch = _torch()
    size = array_bytes(last_level_bytes(read_cpu()), memory_bytes())
    arrays = [_array(size) for _ in range(ARRAYS[kind])]
    to, source = arrays[0], arrays[-1]
    works: dict[str, Workload] = {
        "read": lambda: torch.sum(to),
        "copy": lambda: to.copy_(source),
        "triad": lambda: torch.add(arrays[1], source, alpha=0.5, out=to),
    }
    moved = ARRAYS[kind] * to.numel() * 4
    at = {"bytes": to.numel() * 4, "threads": cores()}
    return best(f"host.{kind}", [Measurement(at, sample(timed(works[kind]), effort(job, BUDGET_S)), moved)])


def _cache(job: GaugeJob) -> Ceiling:
    """Return the bandwidth of caches: a triad of arrays that fit, by the size of all three."""
    results = [_triad(size, job) for size in footprints(read_cpu(), cores())]
    if not results:
        raise NotHereError("the kernel does not report the caches' sizes")
    return best("host.cache", results)


def _triad(size: int, job: GaugeJob) -> Measurement:
    torch = _torch()
    first, second, out = (torch.rand(size // 12) for _ in range(3))
    work = timed(lambda: torch.add(first, second, alpha=0.5, out=out))
    at = {"bytes": 12 * out.numel(), "threads": cores()}
    return Measurement(at, sample(work, effort(job, BUDGET_S / 2)), 12.0 * out.numel(), by_host=True)


def _dispatch(job: GaugeJob) -> Ceiling:
    """Return the time of one operator on one number, called from Python."""
    element = _torch().zeros(1)
    taken = sample(timed(lambda: element.add_(element)), effort(job, BUDGET_S / 2))
    return best("host.dispatch", [Measurement({"threads": 1}, taken, by_host=True)])


def _matmul(dtype: str, job: GaugeJob) -> Ceiling:
    """Return the best of all sizes and thread counts.

    The threads of a product wait for each other: if anything else runs on one of the cores, all of them are
    many times slower. With one thread less, a core is left for it. Small products run on all threads, as in
    programs: their rates are for plans.
    """
    chosen = FULL_SIZES if job.full else SIZES
    results = [_product(dtype, size, cores(), job, SMALL_S) for size in SMALL_SIZES]
    for threads in sorted({max(1, cores() - 1), cores()}):
        fastest = 0.0
        for size in chosen:
            if fastest and 2.0 * size**3 / fastest > LONGEST_S:
                break  # a larger product would only take longer
            results.append(_product(dtype, size, threads, job, BUDGET_S / len(chosen)))
            fastest = results[-1].rate
    return best(f"host.matmul.{dtype}", results)


def _product(dtype: str, size: int, threads: int, job: GaugeJob, seconds: float) -> Measurement:
    torch = _torch()
    torch.set_num_threads(threads)
    kind = getattr(torch, TORCH_DTYPES[dtype])
    left, right = (torch.randn(size, size, dtype=kind) for _ in range(2))
    out = torch.empty(size, size, dtype=kind)
    taken = sample(timed(lambda: torch.mm(left, right, out=out)), effort(job, seconds))
    torch.set_num_threads(cores())
    return Measurement({"shape": [size] * 3, "threads": threads}, taken, 2.0 * size**3)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    **{f"host.{kind}": partial(_memory, kind) for kind in ARRAYS},
    "host.cache": _cache,
    "host.dispatch": _dispatch,
    **{f"host.matmul.{dtype}": partial(_matmul, dtype) for dtype in HOST_DTYPES},
}
