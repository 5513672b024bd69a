"""Measure arithmetic without tensor cores: fused multiply-adds in fp32 and fp64, and special functions."""

from __future__ import annotations

from ctypes import c_double, c_float, c_int32
from functools import partial
from typing import Any

from fathom.gauges import cuda
from fathom.gauges.gpu import MeasuredGpu, Workload, effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import best
from fathom.gauges.timer import Effort
from fathom.machine import Ceiling

THREADS, CHAINS, STEPS = 256, 8, 16  # must match kernels/vector.cu
FLOPS = {"fp32": 2, "fp64": 2, "special": 1}  # operations per step of a chain
LAUNCH_S = 2e-3
FEW_PASSES = 16
BUDGET_S = 0.4


def work_of(kind: str, blocks: int, passes: int) -> int:
    """Return the operations of `blocks` in `passes`; in each, a thread runs CHAINS chains of STEPS steps."""
    return FLOPS[kind] * blocks * THREADS * CHAINS * STEPS * passes


def _measure(kind: str, job: GaugeJob) -> Ceiling:
    here = gpu()
    grid = here.blocks(THREADS)
    few = here.sample(_launcher(here, kind, grid, FEW_PASSES), Effort(budget_s=0.02)).median
    passes = max(FEW_PASSES, int(FEW_PASSES * LAUNCH_S / few))
    # The first time includes the launch overhead, so time again to find the passes that fill LAUNCH_S.
    again = here.sample(_launcher(here, kind, grid, passes), Effort(budget_s=0.02)).median
    passes = max(FEW_PASSES, int(passes * LAUNCH_S / again))
    work = _launcher(here, kind, grid, passes)
    at = {"blocks": grid, "threads": THREADS, "chains": CHAINS}
    return best(
        f"vector.{kind}", [here.measure(at, work, work_of(kind, grid, passes), effort(job, BUDGET_S))]
    )


def _launcher(here: MeasuredGpu, kind: str, grid: int, passes: int) -> Workload:
    torch = here.torch
    dtype = torch.float64 if kind == "fp64" else torch.float32
    start = torch.rand(THREADS * CHAINS, dtype=dtype, device="cuda")
    end = torch.empty(grid * THREADS, dtype=dtype, device="cuda")
    number = c_double if kind == "fp64" else c_float
    factors: tuple[Any, ...] = () if kind == "special" else (number(0.999), number(0.001))
    name = "exponential" if kind == "special" else f"fma_{kind}"
    compiled = cuda.kernel("vector", name)
    return compiled.launcher(grid, THREADS, start, end, *factors, c_int32(passes))


GAUGES = {f"vector.{kind}": partial(_measure, kind) for kind in FLOPS}
