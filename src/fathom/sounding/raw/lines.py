"""Source lines of ops; Kineto's frames only have the first line of a function."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from fathom.sounding.schema import TABLES

SOURCE = r"^(?<file>.*)\((?<line>\d+)\): (?<function>.*)$"


def with_lines(ops: pl.DataFrame, trace: Path) -> pl.DataFrame:
    """Add `line` to `ops` if the probe recorded lines beside the trace."""
    called = _read(trace)
    if called.is_empty() or ops["source"].null_count() == ops.height:
        return ops
    parts = ops.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col("start_ns").alias("ns"),
        pl.col("source").str.extract_groups(SOURCE),
    ).unnest("source")
    near = (
        parts.drop_nulls("file")
        .sort("ns")
        .join_asof(called, on="ns", by=["file", "function"], strategy="backward", check_sortedness=False)
    )
    lines = near.drop_nulls("ran").select("row", line="ran")
    rows = ops.drop("line").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    return rows.join(lines, on="row", how="left", maintain_order="left").select(list(TABLES["ops"]))


def _read(trace: Path) -> pl.DataFrame:
    """ns, file, function, ran (the line that the function had reached); empty if none were recorded."""
    schema = {"ns": pl.Int64, "file": pl.String, "function": pl.String, "ran": pl.Int64}
    path = trace.parent / f"lines-{trace.name.removesuffix('.gz')}"
    try:
        rows = json.loads(path.read_bytes())
        return pl.DataFrame(rows, schema=schema, orient="row").sort("ns", maintain_order=True)
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema=schema)
