"""Measure matrix products: the best rate of each dtype over several shapes, and the sustained rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any

from fathom.gauges.catalogue import DTYPES
from fathom.gauges.conditions import Watch
from fathom.gauges.gpu import MeasuredGpu, Workload, effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.gauges.timer import Effort, Sample
from fathom.machine import Ceiling
from fathom.units import MS_PER_S

Shape = tuple[int, int, int]  # rows (M) and columns (N) of the result, inner dimension (K)
SHAPES: tuple[Shape, ...] = ((4096,) * 3, (6144,) * 3, (8192,) * 3)
FULL_SHAPES: tuple[Shape, ...] = (*SHAPES, (2048,) * 3, (8192, 8192, 4096), (16384,) * 3, (16384, 4096, 8192))
SUSTAINED: Shape = (8192,) * 3
SUSTAINED_S = 3.0
HEATING_S = 1.0  # not measured, because the clocks are still falling
CHUNK_S = 0.05
# Short bursts with rests stay below the power limit; otherwise the best rate would be the sustained one.
# Every shape and layout is tried briefly, then the fastest is measured with longer rests.
TRY = {"sample_s": 0.004, "rest_s": 0.02}
TRY_S = 0.15
BEST = {"sample_s": 0.01, "rest_s": 0.1}
BEST_S = 1.2
FP8_MAX = 448.0
LAYOUTS = ("x @ w.T", "x @ w")  # as in a linear layer; both operands row-major
PLAIN = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SINCE = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9), "fp4": (10, 0)}  # first compute capability


def flops(shape: Shape) -> float:
    """Return the floating-point operations of one product: 2 × rows × columns × inner dimension."""
    rows, columns, length = shape
    return 2.0 * rows * columns * length


def _best(dtype: str, job: GaugeJob) -> Ceiling:
    here = gpu()
    chosen = [shape for shape in (FULL_SHAPES if job.full else SHAPES) if _fits(here, shape)]
    layouts = LAYOUTS if dtype in PLAIN else LAYOUTS[:1]
    tried = [
        (_at(here, dtype, shape, layout, effort(job, TRY_S, **TRY)), shape, layout)
        for shape in chosen
        for layout in layouts
    ]
    quickest = [
        _at(here, dtype, shape, layout, effort(job, BEST_S, **BEST))
        for _, shape, layout in sorted(tried, key=lambda result: -result[0].rate)[:1]
    ]
    return best(f"matmul.{dtype}", [*quickest, *(result for result, _, _ in tried)])


def _at(here: MeasuredGpu, dtype: str, shape: Shape, layout: str, pace: Effort) -> Measurement:
    work = product(here, dtype, shape, layout)
    return here.measure({"shape": list(shape), "layout": layout}, work, flops(shape), pace)


def _fits(here: MeasuredGpu, shape: Shape) -> bool:
    """Return whether three times the operands and the result fit into memory, at 8 bytes per number."""
    rows, columns, length = shape
    return 24 * (rows * length + columns * length + rows * columns) <= here.room()


def _sustained(dtype: str, job: GaugeJob) -> Ceiling:
    here = gpu()
    shape = SUSTAINED if _fits(here, SUSTAINED) else (2048,) * 3
    work = product(here, dtype, shape)
    work()
    count = max(1, round(CHUNK_S / max(here.seconds(work, 2) / 2, 1e-6)))
    _run(here, work, count, HEATING_S * job.pace)
    with Watch(here.sensors) as watch:
        chunks = _run(here, work, count, (SUSTAINED_S - HEATING_S) * job.pace)
    at = {"shape": list(shape), "seconds": SUSTAINED_S * job.pace}
    result = Measurement(at, Sample(tuple(chunks), count), flops(shape), watch.conditions, watch.flags)
    return best(f"matmul.{dtype}.sustained", [result])


def _run(here: MeasuredGpu, work: Workload, count: int, seconds: float) -> list[float]:
    """Keep the device busy in chunks of `count` calls; return the seconds per call of each chunk.

    While the host waits for a chunk, more chunks are already queued.
    """
    events = [_chunk(here, work, count), _chunk(here, work, count)]
    until = perf_counter() + seconds
    while perf_counter() < until or len(events) < 4:
        events.append(_chunk(here, work, count))
        events[-3].synchronize()
    events[-1].synchronize()
    pairs = pairwise(events)
    return [begin.elapsed_time(end) / MS_PER_S / count for begin, end in pairs]


def _chunk(here: MeasuredGpu, work: Workload, count: int) -> Any:
    for _ in range(count):
        work()
    end = here.torch.cuda.Event(enable_timing=True)
    end.record()
    return end


def product(here: MeasuredGpu, dtype: str, shape: Shape, layout: str = LAYOUTS[0]) -> Workload:
    """Return a function that multiplies random matrices. Raises NotHereError if the chip lacks the dtype."""
    if here.capability < SINCE.get(dtype, (0, 0)):
        since = ".".join(map(str, SINCE[dtype]))
        raise NotHereError(
            f"the chip has no {dtype} matrix units, which came with compute capability {since}"
        )
    if dtype in PLAIN:
        return _plain(here, dtype, shape, layout)
    return {"int8": _int8, "fp8": _fp8, "fp4": _fp4}[dtype](here, shape)


def _plain(here: MeasuredGpu, dtype: str, shape: Shape, layout: str) -> Workload:
    torch, (rows, columns, length) = here.torch, shape
    kind = getattr(torch, PLAIN[dtype])
    left, right = here.random(rows, length, dtype=kind), here.random(columns, length, dtype=kind).t()
    right = right if layout == LAYOUTS[0] else right.contiguous()
    out = torch.empty(rows, columns, dtype=kind, device="cuda")

    def work() -> None:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        torch.mm(left, right, out=out)

    return work


def _int8(here: MeasuredGpu, shape: Shape) -> Workload:
    torch, (rows, columns, length) = here.torch, shape
    left = here.random(rows, length, dtype=torch.int8)
    right = here.random(columns, length, dtype=torch.int8).t()
    out = torch.empty(rows, columns, dtype=torch.int32, device="cuda")
    return lambda: torch._int_mm(left, right, out=out)


def _fp8(here: MeasuredGpu, shape: Shape) -> Workload:
    """Return a function for e4m3 products to bf16, with one scale per matrix and fast accumulation."""
    torch, (rows, columns, length) = here.torch, shape
    left, right = _fp8_matrix(here, rows, length), _fp8_matrix(here, columns, length).t()
    scale = torch.ones((), device="cuda")
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    return lambda: torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, **options)


def _fp8_matrix(here: MeasuredGpu, rows: int, columns: int) -> Any:
    values = here.random(rows, columns, dtype=here.torch.bfloat16)
    return values.clamp(-FP8_MAX, FP8_MAX).to(here.torch.float8_e4m3fn)


def _fp4(here: MeasuredGpu, shape: Shape) -> Workload:
    """Return a function for NVFP4 products to bf16: two e2m1 values per byte, an e4m3 scale per 16 values."""
    torch, (rows, columns, length) = here.torch, shape
    if not hasattr(torch, "float4_e2m1fn_x2"):
        raise NotHereError("this torch version has no fp4 type")
    left, right = _fp4_matrix(here, rows, length), _fp4_matrix(here, columns, length).t()
    scales = [_fp4_scales(here, size, length) for size in (rows, columns)]
    options = {"out_dtype": torch.bfloat16}
    return lambda: torch._scaled_mm(left, right, scale_a=scales[0], scale_b=scales[1], **options)


def _fp4_matrix(here: MeasuredGpu, rows: int, columns: int) -> Any:
    torch = here.torch
    packed = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, device="cuda")
    return packed.view(torch.float4_e2m1fn_x2)


def _fp4_scales(here: MeasuredGpu, rows: int, columns: int) -> Any:
    """Return scales, padded to cuBLASLt's blocks of 128 × 4; all about 1, so their order is irrelevant."""
    count = -(-rows // 128) * 128 * (-(-(columns // 16) // 4) * 4)
    return (here.torch.rand(count, device="cuda") + 0.5).to(here.torch.float8_e4m3fn)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    **{f"matmul.{dtype}": partial(_best, dtype) for dtype in DTYPES},
    **{f"matmul.{dtype}.sustained": partial(_sustained, dtype) for dtype in DTYPES},
}
