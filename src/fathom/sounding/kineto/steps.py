"""Marks and steps that the trace itself holds."""

from __future__ import annotations

import polars as pl

from fathom.sounding.schema import conform

MARK = "fathom.mark#"
STEP = "ProfilerStep#"


def marks(ops: pl.DataFrame) -> pl.DataFrame:
    """k, ns and thread of the annotations that Fathom's probe left, in the order of time."""
    numbered = ops.select(k=_number(MARK), ns="start_ns", thread="thread")
    return numbered.drop_nulls("k").sort("ns")


def profiler_steps(ops: pl.DataFrame, phase: str, burst: int) -> pl.DataFrame:
    """One row a ProfilerStep on the host: it ends where the next begins, the last one at its own end."""
    found = ops.with_columns(step=_number(STEP)).drop_nulls("step").sort("start_ns")
    rows = found.select(
        "step",
        "thread",
        kind=pl.lit("step"),
        source=pl.lit("profiler"),
        mark_ns="start_ns",
        end_ns=pl.col("start_ns").shift(-1).over("thread").fill_null(pl.col("end_ns")),
        phase=pl.lit(phase),
        burst=pl.lit(burst),
    )
    return conform("steps", rows)


def _number(prefix: str) -> pl.Expr:
    return pl.col("name").str.extract(rf"^{prefix}(\d+)$").cast(pl.Int64, strict=False)
