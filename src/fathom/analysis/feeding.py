"""The input pipeline: how long steps waited for their batches, and what making a batch took."""

from __future__ import annotations

import polars as pl

from fathom.analysis.causes import REGIONS
from fathom.analysis.entries import ALIASES
from fathom.analysis.intervals import Array, Spans, covered, intersect, of_rows
from fathom.analysis.results import Input, Worker
from fathom.analysis.windows import Windows
from fathom.units import NS_PER_MS

STAGES = ("fetch", "read", "decode", "transform", "collate", "pin", "copy")
_RECORDED = ["input", *(alias for alias, cause in ALIASES.items() if cause == "input")]


def input_waits(waits: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """start_ns and end_ns of each wait for a batch: as recorded, or else as regions of the timeline tell."""
    recorded = waits.filter(pl.col("cause").is_in(_RECORDED))
    regions = (
        ops.filter(pl.col("name").str.contains(REGIONS["input"].pattern)) if recorded.is_empty() else recorded
    )
    return regions.select("start_ns", "end_ns")


def feeding(waits: pl.DataFrame, batches: pl.DataFrame, within: Spans, steps: int) -> Input | None:
    """Milliseconds that a step waited and their share, medians by stage and worker; None without a loader.

    `waits` has start_ns and end_ns, `batches` is one rank's input table; `within` is when the `steps` ran.
    """
    inside = batches.filter(covered(within, *_instants(batches)) > 0)
    batches = inside if inside.height else batches
    if batches.is_empty() and waits.is_empty():
        return None
    result = Input(batches=batches.height or None)
    if steps:
        waited = intersect(of_rows(waits), within).length
        result.wait_ms, result.wait_share = waited / steps / NS_PER_MS, waited / within.length
    _set_medians(result, batches)
    workers = batches.drop_nulls("worker").partition_by("worker", as_dict=True)
    for key, rows in sorted(workers.items()):
        worker = Worker(int(key[0]), rows.height)
        _set_medians(worker, rows)
        result.workers.append(worker)
    return result


def copy_ms(kernels: pl.DataFrame, windows: Windows) -> float | None:
    """Milliseconds that a step's copies from the host take on a device, hidden ones too; None without any."""
    copies = kernels.filter(pl.col("kind") == "copy", pl.col("direction").str.starts_with("HtoD"))
    starts, ends = windows.starts[windows.used], windows.ends[windows.used]
    if copies.is_empty() or not len(starts):
        return None
    taken = covered(Spans(starts, ends), copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy())
    return float(taken.sum()) / len(starts) / NS_PER_MS


def _instants(batches: pl.DataFrame) -> tuple[Array, Array]:
    asked = batches["start_ns"].fill_null(0).to_numpy()
    return asked, asked + 1


def _set_medians(to: Input | Worker, batches: pl.DataFrame) -> None:
    for stage in STAGES:
        median = batches[f"{stage}_ns"].median()
        if isinstance(median, int | float):
            setattr(to, f"{stage}_ms", median / NS_PER_MS)
    size = batches["read_bytes"].median()
    to.read_bytes = size if isinstance(size, int | float) else None
    _set_waits_for_processors(to, batches)


def _set_waits_for_processors(to: Input | Worker, batches: pl.DataFrame) -> None:
    """How many threads torch computes with in a worker, where more than one, and what of its time they wait.

    The share is of all batches together: those that wait may be few, and long.
    """
    threads = batches["threads"].median()
    if isinstance(threads, int | float) and threads > 1:
        to.threads = int(threads)
    known = batches.drop_nulls(["cpu_wait_ns", "fetch_ns"])
    waited, fetch, collate = (int(known[f"{name}_ns"].sum()) for name in ("cpu_wait", "fetch", "collate"))
    if fetch + collate:
        to.cpu_wait_share = waited / (fetch + collate)
