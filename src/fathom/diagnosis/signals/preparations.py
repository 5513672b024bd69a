"""Ops that keep the launching thread for long without a runtime call: they prepare their launch."""

from __future__ import annotations

import polars as pl

from fathom.analysis.intervals import covered, intersect, of_rows, subtract, union
from fathom.diagnosis.signals import silent
from fathom.diagnosis.signals.pauses import SHORT_NS
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Preparation
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

OPS = r"^\w+::"  # of a library: functions of the program have no namespace
ENGINE = r"^(autograd|torch)::"


@signal("host.preparations", "ms per step")
def preparations(recorded: Recorded) -> list[Preparation]:
    """Preparations by name of the innermost op, those that keep the device idle longest first.

    Only ops that call the runtime: the others are in `host.processor_ops`.
    """
    ops = recorded.ops.select("kind", "name", inside=pl.int_range(pl.len(), dtype=pl.Int64))
    stretches = silent.stretches(recorded, SHORT_NS).filter(~pl.col("calling"))
    mine = ops.filter(
        pl.Series(recorded.meets), pl.col("inside").is_in(stretches["inside"].implode()), kind="op"
    )
    mine = mine.filter(pl.col("name").str.contains(OPS), ~pl.col("name").str.contains(ENGINE))
    groups = stretches.join(mine, on="inside").group_by("name", maintain_order=True)
    prepared = [_preparation(recorded, str(name), rows) for (name,), rows in groups]
    return sorted((op for op in prepared if op.count), key=lambda op: -op.idle_ms)


def _preparation(recorded: Recorded, name: str, rows: pl.DataFrame) -> Preparation:
    starts, ends = rows["at"].to_numpy(), rows["until"].to_numpy()
    stretches = intersect(union(starts, ends), recorded.used)
    every = recorded.ops.select("name", "start_ns", "end_ns", "ran").filter(name=name)
    every_call = intersect(of_rows(every), recorded.used)
    lines = every["ran"].drop_nulls().mode().sort()
    return Preparation(
        name,
        stretches.length / recorded.steps / NS_PER_MS,
        subtract(stretches, recorded.busy).length / recorded.steps / NS_PER_MS,
        rows.filter(pl.Series(covered(recorded.used, starts, ends) > 0))["inside"].n_unique()
        / recorded.steps,
        stretches.length / every_call.length if every_call.length else 0.0,
        lines[0] if len(lines) else None,
    )
