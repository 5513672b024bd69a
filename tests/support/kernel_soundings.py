"""A sounding with counters of an H200, made by hand: three families whose counters are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fathom.sounding import Manifest, Rank, Store, Writer, conform
from tests.support import folding_truth as truth

MS = 1_000_000
FAMILIES = {  # name: µs, grid, block, registers, shared bytes, local bytes
    "gemm_kernel 2x66x1·384x1x1": (300, "2x66x1", "384x1x1", 168, 213_188, 0),
    "exp_kernel 8192x1x1·128x1x1": (120, "8192x1x1", "128x1x1", 32, 0, 0),
    "tiny_kernel 4x1x1·64x1x1": (3, "4x1x1", "64x1x1", 24, 1024, 16),
}
PERCENT = ".avg.pct_of_peak_sustained_elapsed"
COUNTERS = {  # per cent, by family in the order above
    "TPC.TriageCompute.sm__cycles_active" + PERCENT: (99.0, 97.0, 20.0),
    "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime" + PERCENT: (86.0, 0.0, 0.0),
    "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime" + PERCENT: (5.0, 20.0, 1.0),
    "TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime" + PERCENT: (8.0, 30.0, 1.0),
    "SM_A.TriageCompute.sm__inst_executed_pipe_xu_realtime" + PERCENT: (0.5, 92.0, 0.0),
    "TPC.TriageCompute.sm__inst_executed_realtime" + PERCENT: (20.0, 45.0, 2.0),
    "TPC.TriageCompute.tpc__warps_active_shader_cs_realtime" + PERCENT: (18.0, 80.0, 2.0),
    "TPC.TriageCompute.tpc__warps_inactive_sm_active_realtime" + PERCENT: (80.0, 17.0, 18.0),
    "FBSP.TriageCompute.dramc__read_throughput" + PERCENT: (30.0, 25.0, 1.0),
    "FBSP.TriageCompute.dramc__write_throughput" + PERCENT: (10.0, 25.0, 0.5),
    "LTS.TriageCompute.lts__t_sector_throughput" + PERCENT: (40.0, 22.0, 1.0),
    "SM_A.TriageCompute.l1tex__data_pipe_lsu_wavefronts" + PERCENT: (35.0, 15.0, 0.3),
}
GPU = {
    "index": 0,
    "name": "NVIDIA H200",
    "compute_capability": "9.0",
    "multiprocessors": 132,
    "sm_clock_max_mhz": 1980,
}


def make(folder: Path, *, counters: bool = True, seed: int = 0) -> Store:
    """Ten steps of a timeline, and two bursts of counters of twelve steps each."""
    random = np.random.default_rng(seed)
    levels = np.array(list(COUNTERS.values())).T
    bursts = [_rows(random, 12) for _ in range(2)]
    result = truth.sampled(random, bursts, levels, interval_us=20, names=list(COUNTERS), noise=1.0)
    labels = dict(zip(result.labels, FAMILIES, strict=True))
    timeline = _rows(random, 10)
    begin = truth.EPOCH - 10**10
    rows = [_kernel(list(FAMILIES)[f], begin + s, begin + e, "timeline", 9) for s, e, f in timeline]
    if counters:
        for row in result.kernels.iter_rows(named=True):
            rows.append(
                _kernel(labels[row["family"]], row["start_ns"], row["end_ns"], "counters", row["burst"])
            )
    writer = Writer(folder)
    writer.write(0, "kernels", conform("kernels", pl.DataFrame(rows, infer_schema_length=None)))
    writer.write(0, "steps", _steps(begin, timeline))
    if counters:
        writer.write(0, "samples", result.samples)
    facts = {"counter_groups": [result.names]} if counters else {}
    rank = Rank(rank=0, devices={0: "NVIDIA H200"}, facts=facts)
    return writer.finish(Manifest(name="hand made", ranks=[rank]), {"gpus": [GPU]})


def _rows(random: np.random.Generator, steps: int) -> list[tuple[int, int, int]]:
    rows, now = [], 0
    for _ in range(steps):
        for family in (0, 1, 2, 2, 0, 2, 1):
            now += int(random.exponential(6_000)) + 1_000
            length = int(list(FAMILIES.values())[family][0] * 1e3 * random.uniform(0.98, 1.02))
            rows.append((now, now + length, family))
            now += length
        now += 40_000
    return rows


def _kernel(family: str, start: int, end: int, phase: str, burst: int) -> dict[str, object]:
    _, grid, block, registers, shared, local = FAMILIES[family]
    return {
        "device": 0, "stream": 7, "kind": "compute", "name": family.split()[0], "family": family,
        "start_ns": start, "end_ns": end, "grid": grid, "block": block, "registers": registers,
        "shared_bytes": shared, "local_bytes": local, "phase": phase, "burst": burst,
    }  # fmt: skip


def _steps(begin: int, rows: list[tuple[int, int, int]]) -> pl.DataFrame:
    marks = [begin - 1000, *(begin + rows[k][0] - 1000 for k in range(7, len(rows), 7)), begin + rows[-1][1]]
    return conform(
        "steps",
        pl.DataFrame(
            {
                "step": list(range(len(marks) - 1)),
                "kind": "train",
                "source": "mark",
                "thread": 1,
                "mark_ns": marks[:-1],
                "end_ns": marks[1:],
                "stream": 7,
                "phase": "timeline",
                "burst": 9,
            }
        ),
    )
