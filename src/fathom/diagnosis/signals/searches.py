"""Ops that autotune: they time several kernels before they use one."""

from __future__ import annotations

import polars as pl

from fathom.analysis.work import rows_of
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Searches
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

TIMED = r"^(cuda|hip)EventSynchronize$"
LEAST = 3  # events that one op waits for: only ops that time kernels do


def searching(recorded: Recorded) -> set[int]:
    """Rows of ops that wait for several of their events."""
    if "searching" not in recorded.read:
        calls = recorded.calls.filter(pl.col("api").str.contains(TIMED)).drop_nulls("op")
        above = pl.Series("row", rows_of(recorded.ops, calls, "op"), dtype=pl.Int64)
        counts = above.filter(above >= 0).value_counts()
        framework = recorded.ops["kind"].eq_missing("op").to_list()
        many = counts.filter(pl.col("count") >= LEAST)["row"].to_list()
        recorded.read["searching"] = {row for row in many if framework[row]}
    return recorded.read["searching"]


@signal("host.searches", "per step")
def searches(recorded: Recorded) -> Searches | None:
    """Autotuning in the timeline and in the step with stacks."""
    rows = sorted(searching(recorded))
    if not rows:
        return Searches(0.0, 0.0, 0.0, "")
    ops = recorded.ops[rows].with_columns(window=recorded.window(recorded.ops[rows]))
    inside = ops.filter(pl.col("window") >= 0)
    ns = int((inside["end_ns"] - inside["start_ns"]).sum())
    source = next(filter(None, (recorded.paths.mark("source", row) for row in rows)), None)
    steps = inside["window"].n_unique() / recorded.steps
    name = str(ops["name"].mode().sort()[0])
    return Searches(ns / recorded.steps / NS_PER_MS, inside.height / recorded.steps, steps, name, source)
