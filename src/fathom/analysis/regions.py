"""Regions that the program names (`fathom.region`, `record_function`): their time per step, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from fathom.analysis.causes import REGIONS, STEPS
from fathom.analysis.intervals import Spans, covered, intersect, of_rows
from fathom.analysis.processor import innermost
from fathom.analysis.results import Region
from fathom.analysis.windows import Windows
from fathom.units import NS_PER_MS

MOST = 200  # names; with more, the program probably numbers its regions, so none is shown
# Annotations that frameworks open.
_NOT_OURS = re.compile(
    r"^(fathom\.|Optimizer\.|autograd::|nccl:|gloo:|mpi:|ucc:|c10d|DistributedDataParallel|FullySharded"
    r"|FSDP|Torch-Compiled|TorchDynamo|CompiledFunction|## Call|PyTorch Profiler|\[(pl|Strategy|Callback)\]"
    rf"|cuBLAS|Lazy Function)|dynamo_timed|{STEPS}"
)


def regions(ops: pl.DataFrame, kernels: pl.DataFrame, windows: Windows) -> list[Region]:
    """Return the named regions, longest first: means over the used windows, of their parts inside.

    `ops` has kind, name, thread, start_ns and end_ns; `kernels`, of one device or empty, launched, launcher,
    start_ns and end_ns. [] if there are more than MOST names.
    """
    starts, ends = windows.starts[windows.used], windows.ends[windows.used]
    named = ops.filter(kind="annotation")
    named = named.filter(~pl.col("name").str.contains(_NOT_OURS.pattern), _without_cause())
    inside = named.filter(pl.Series(covered(Spans(starts, ends), *_bounds(named)) > 0))
    if inside.is_empty() or inside["name"].n_unique() > MOST:
        return []
    order = np.argsort(starts)
    within = Spans(starts[order], ends[order])
    own = _own_ns(inside, within)
    named_regions = [
        _region(name, rows, kernels, within, own.get(name, 0))
        for (name,), rows in inside.partition_by("name", as_dict=True).items()
    ]
    return sorted(named_regions, key=lambda region: (-region.ms, region.name))


def _without_cause() -> pl.Expr:
    """Return a filter for regions without a cause; the others are entries of the ledger."""
    return ~pl.any_horizontal(pl.col("name").str.contains(known.pattern) for known in REGIONS.values())


def _bounds(rows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()


def _region(name: str, rows: pl.DataFrame, kernels: pl.DataFrame, within: Spans, own_ns: int) -> Region:
    steps = len(within.starts)
    threads = [(thread, intersect(spans, within)) for thread, spans in _threads(rows)]
    taken = sum(spans.length for _, spans in threads)
    begun = covered(within, rows["start_ns"].to_numpy(), rows["start_ns"].to_numpy() + 1)
    device = (
        None if kernels.is_empty() else sum(_launched(kernels, *own) for own in threads) / steps / NS_PER_MS
    )
    return Region(
        name, taken / steps / NS_PER_MS, own_ns / steps / NS_PER_MS, float(begun.sum()) / steps, device
    )


def _threads(rows: pl.DataFrame) -> Iterator[tuple[int, Spans]]:
    for (thread,), mine in rows.partition_by("thread", as_dict=True).items():
        yield thread, of_rows(mine)


def _launched(kernels: pl.DataFrame, thread: int, spans: Spans) -> int:
    """Return the ns of device work that the thread launched within `spans`."""
    mine = kernels.filter(pl.col("launcher") == thread).drop_nulls("launched")
    at = mine["launched"].to_numpy()
    inside = covered(spans, at, at + 1) > 0
    return int((mine["end_ns"] - mine["start_ns"]).to_numpy()[inside].sum())


def _own_ns(rows: pl.DataFrame, within: Spans) -> dict[str, int]:
    """Return the ns within the windows by name, without nested regions."""
    own_ns: dict[str, int] = {}
    for (_,), mine in rows.partition_by("thread", as_dict=True).items():
        index, segments = innermost(*_bounds(mine))
        taken = covered(within, segments.starts, segments.ends)
        for op, ns in zip(index.tolist(), taken.tolist(), strict=True):
            name = mine["name"][op]
            own_ns[name] = own_ns.get(name, 0) + int(ns)
    return own_ns
