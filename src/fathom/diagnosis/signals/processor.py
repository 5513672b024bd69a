"""Signals of the CPU's work in launching threads."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array, covered, intersect, subtract, union
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import HostWork
from fathom.diagnosis.signals.shapes import shapes_of
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

WORKS_NS = 50_000  # an op without a call for this long computes; dispatching takes less
MOSTLY = 0.8  # of an op's time in these calls
PINNING = r"^aten::_?pin_memory$"
PINNED = r"^aten::pin_memory$"
_COLUMNS = ["thread", "name", "start_ns", "end_ns", "shapes", "ran"]


@signal("host.processor_ops", "ms per step")
def processor_ops(recorded: Recorded) -> list[HostWork]:
    """Outermost ops without a runtime call beneath them, those that keep the device idle longest first."""
    ops = recorded.ops
    meets = recorded.meets & ~ops["name"].str.contains(PINNING).fill_null(False).to_numpy()
    beneath = np.append(~meets & _is_op(ops), False)[recorded.parents]  # NONE is the last
    rows = ops.select(_COLUMNS).filter(pl.Series(~meets & _is_op(ops) & ~beneath))
    return _worked(recorded, rows.filter(~pl.col("name").str.contains(PINNING)))


@signal("host.pinning", "ms per step")
def pinning(recorded: Recorded) -> list[HostWork]:
    """Ops that copy a tensor to page-locked memory."""
    return _worked(recorded, recorded.ops.select(_COLUMNS).filter(pl.col("name").str.contains(PINNED)))


def _is_op(ops: pl.DataFrame) -> Array:
    return (ops["kind"] == "op").fill_null(False).to_numpy()


def _worked(recorded: Recorded, rows: pl.DataFrame) -> list[HostWork]:
    rows = _long(rows.filter(pl.col("thread").is_in(recorded.launching.implode())))
    groups = rows.group_by("name", maintain_order=True)
    ops = [_work(recorded, str(name), mine) for (name,), mine in groups]
    return sorted((op for op in ops if op.count), key=lambda op: -op.idle_ms)


def _long(rows: pl.DataFrame) -> pl.DataFrame:
    """Calls that are long because they compute; a usually short op was interrupted."""
    took = pl.col("end_ns") - pl.col("start_ns")
    long = took >= WORKS_NS
    return rows.filter(long & (took.filter(long).sum() >= MOSTLY * took.sum()).over("name"))


def _work(recorded: Recorded, name: str, rows: pl.DataFrame) -> HostWork:
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    count = int((covered(recorded.used, starts, ends) > 0).sum())
    spans = intersect(union(starts, ends), recorded.used)
    idle = subtract(spans, recorded.busy)
    sizes = [shape for text in rows["shapes"].drop_nulls().unique() for shape in shapes_of(text)]
    lines = rows["ran"].drop_nulls().mode().sort()
    return HostWork(
        name,
        spans.length / recorded.steps / NS_PER_MS,
        idle.length / recorded.steps / NS_PER_MS,
        count / recorded.steps,
        max((int(np.prod(shape)) for shape in sizes if shape), default=0),
        lines[0] if len(lines) else None,
    )
