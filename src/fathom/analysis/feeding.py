"""The input pipeline: waits of steps for batches, and the time to make a batch."""

from __future__ import annotations

import polars as pl

from fathom.analysis.causes import REGIONS
from fathom.analysis.columns import filled
from fathom.analysis.entries import ALIASES, Entry
from fathom.analysis.intervals import Array, Spans, covered, intersect, of_rows
from fathom.analysis.resources import Input, Stages, Worker
from fathom.analysis.windows import Windows
from fathom.units import NS_PER_MS

STAGES = ("fetch", "read", "decode", "transform", "collate", "pin", "copy")
_INPUT = Entry.INPUT.cause
_RECORDED = [_INPUT, *(alias for alias, cause in ALIASES.items() if cause == _INPUT)]


def input_waits(waits: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return start_ns and end_ns of each wait for a batch, from recorded waits or else timeline regions."""
    recorded = waits.filter(pl.col("cause").is_in(_RECORDED))
    regions = (
        ops.filter(pl.col("name").str.contains(REGIONS[_INPUT].pattern)) if recorded.is_empty() else recorded
    )
    return regions.select("start_ns", "end_ns")


def input_of(waits: pl.DataFrame, batches: pl.DataFrame, within: Spans, steps: int) -> Input | None:
    """Return waits per step, and medians per batch by stage and worker, in ms; None if there is no loader.

    `waits` has start_ns and end_ns. `batches` is the table `input` of one rank. `within` holds the times of
    the analysed steps, `steps` their count.
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
        worker = Worker(worker=int(key[0]), batches=rows.height)
        _set_medians(worker, rows)
        result.workers.append(worker)
    return result


def copy_ms(kernels: pl.DataFrame, windows: Windows) -> float | None:
    """Return the ms per step of copies from host to device, overlapped ones included; None without copies."""
    copies = kernels.filter(pl.col("kind") == "copy", pl.col("direction").str.starts_with("HtoD"))
    starts, ends = windows.starts[windows.used], windows.ends[windows.used]
    if copies.is_empty() or not len(starts):
        return None
    taken = covered(Spans(starts, ends), copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy())
    return float(taken.sum()) / len(starts) / NS_PER_MS


def _instants(batches: pl.DataFrame) -> tuple[Array, Array]:
    asked = filled(batches["start_ns"], 0).to_numpy()
    return asked, asked + 1


def _set_medians(to: Stages, batches: pl.DataFrame) -> None:
    for stage in STAGES:
        median = batches[f"{stage}_ns"].median()
        if isinstance(median, int | float):
            setattr(to, f"{stage}_ms", median / NS_PER_MS)
    size = batches["read_bytes"].median()
    to.read_bytes = size if isinstance(size, int | float) else None
    _set_waits_for_processors(to, batches)


def _set_waits_for_processors(to: Stages, batches: pl.DataFrame) -> None:
    """Set torch's threads per worker (if several) and the share of time that workers wait for a processor.

    The share is over the total time of all batches, because the batches that wait may be few and long.
    """
    threads = batches["threads"].median()
    if isinstance(threads, int | float) and threads > 1:
        to.threads = int(threads)
    known = batches.drop_nulls(["cpu_wait_ns", "fetch_ns"])
    waited, fetch, collate = (int(known[f"{name}_ns"].sum()) for name in ("cpu_wait", "fetch", "collate"))
    if fetch + collate:
        to.cpu_wait_share = waited / (fetch + collate)
