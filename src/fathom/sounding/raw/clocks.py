"""Conversion of host times in a Kineto burst to the profiler's clock."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Shift:
    """One burst's offset (profiler minus host, ns), its spread, and its host interval."""

    burst: int
    offset_ns: int
    error_ns: int
    start_ns: int
    end_ns: int


def shift(burst: int, marked: pl.DataFrame, annotated: pl.DataFrame) -> Shift | None:
    """The median offset of the marks (k, ns) from their annotations in the trace (k, ns)."""
    both = annotated.select("k", there="ns").join(marked.select("k", "ns"), on="k")
    if both.is_empty():
        return None
    offsets = sorted((both["there"] - both["ns"]).to_list())
    middle = offsets[len(offsets) // 2]
    error = max(middle - offsets[0], offsets[-1] - middle)
    return Shift(burst, middle, error, min(both["ns"]), max(both["ns"]))


def move(frame: pl.DataFrame, times: list[str], by: list[Shift], when: str) -> pl.DataFrame:
    """Shift the columns `times` of rows whose `when` is in a burst's interval, ends included."""
    offset = pl.lit(0, dtype=pl.Int64)
    for burst_shift in by:
        inside = pl.col(when).is_between(burst_shift.start_ns, burst_shift.end_ns)
        offset = pl.when(inside).then(pl.lit(burst_shift.offset_ns, dtype=pl.Int64)).otherwise(offset)
    moved = frame.with_columns(_offset=offset)
    return moved.with_columns(pl.col(name) + pl.col("_offset") for name in times).drop("_offset")
