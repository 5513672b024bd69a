"""Examinations made by hand for the report's tests: what a GPU, a CPU and a damaged recording look like."""

from __future__ import annotations

from typing import Any

from fathom.analysis.resources import Worker
from fathom.analysis.results import (
    Abstained,
    Device,
    Energy,
    Examination,
    Input,
    Integrity,
    LedgerRow,
    Memory,
    Problem,
    RecordingSummary,
    Step,
    Window,
)

GEMM = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_16x16_128x2_tn_align8> 64x1x1·128x1x1"


def work(
    detail: str, ms: float, count: float, tflops: float | None = None, gbs: float | None = None
) -> LedgerRow:
    return LedgerRow(
        entry="compute",
        detail=detail,
        ms=ms,
        count=count,
        flops=None if tflops is None else tflops * 1e9 * ms,
        bytes=None if gbs is None else gbs * 1e6 * ms,
        flops_per_s=None if tflops is None else tflops * 1e12,
        bytes_per_s=None if gbs is None else gbs * 1e9,
    )


def ledger() -> list[LedgerRow]:
    small = [work(f"elementwise_{i}", 0.01 + i / 1000, 6) for i in range(20)]
    return [
        work(GEMM, 14.2, 36, 512.0, 1240.0),
        work("flash_fwd_kernel·64x8x1·128x1x1", 6.1, 6, 304.5, 410.0),
        work("layer_norm_kernel·512x1x1·128x1x1", 2.75, 26, None, 2950.0),
        *small,
        LedgerRow("communication", "AllReduce ring", 4.4, count=3),
        LedgerRow("copy", "HtoD pinned", 0.31, count=2, bytes=524288),
        LedgerRow("idle: python", "", 6.2),
        LedgerRow("idle: input", "", 3.03),
        LedgerRow("idle: launch latency", "", 0.8),
        LedgerRow("idle: unexplained", "", 0.02),
    ]


def device(rank: int = 0, entries: list[LedgerRow] | None = None) -> Device:
    entries = ledger() if entries is None else entries
    total = sum(entry.ms for entry in entries)
    windows = [Window(0, round(total * 1e6), "train", True)]
    result = Device(rank, f"cuda:{rank}", windows, total + 1.1, entries, -1.1, name="NVIDIA H200")
    result.profiled_ledger = [*entries, LedgerRow("idle: dispatching", "", 1.1)]
    return result


def gpu(**changes: Any) -> Examination:
    """A training step on one GPU with every kind of entry."""
    item = device()
    clean = (item.total_ms or 0.0) - 1.1
    step = Step(
        clean,
        item.total_ms,
        [clean - 0.2, clean + 0.2],
        40,
        "train",
        clean_mean_ms=clean,
        tokens_per_s=172_345.6,
    )
    examination = Examination(
        step=step,
        devices=[item],
        integrity=Integrity(True, []),
        input=Input(batches=40, wait_ms=3.03, fetch_ms=41.7, workers=[Worker(worker=0, fetch_ms=40.0)]),
        memory=Memory(peak_allocated_bytes=7 * 2**30, peak_reserved_bytes=9 * 2**30),
        energy=Energy(per_step_j=24.91, mean_power_w=641.3),
        abstained=[
            Abstained("FLOPs of triton_poi_0", "no shapes"),
            Abstained("FLOPs of triton_red_1", "no shapes"),
        ],
        sounding=RecordingSummary(
            name="train_gpt",
            command=["python", "examples/train_gpt.py", "--steps", "600"],
            machine="NVIDIA H200",
            versions={"torch": "2.11.0", "cuda": "13.0"},
            created_ns=1_790_000_000_000_000_000,
            ended="finished",
            exit_status=0,
        ),
    )
    for name, value in changes.items():
        setattr(examination, name, value)
    return examination


def damaged() -> Examination:
    """An imported trace with problems, without a clean step."""
    problems = [Problem("bad-duration", "Kernels end before they begin.", 3, 1)]
    step = Step(None, 101.0, None, 5, "train", source="profiler")
    item = device(1)
    item.observer_ms, item.total_ms = None, sum(entry.ms for entry in item.ledger)
    return gpu(step=step, devices=[item], integrity=Integrity(False, problems), energy=None)
