"""Host times of a Kineto burst, moved onto the profiler's clock."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Shift:
    """One burst's offset (profiler minus host, ns), its spread, and the host interval it holds for."""

    burst: int
    offset_ns: int
    error_ns: int
    start_ns: int
    end_ns: int


def shift(burst: int, marked: pl.DataFrame, annotated: pl.DataFrame) -> Shift | None:
    """The median offset of the marks (k, ns) that the trace also holds as annotations (k, ns)."""
    both = annotated.select("k", there="ns").join(marked.select("k", "ns"), on="k")
    if both.is_empty():
        return None
    offsets = sorted((both["there"] - both["ns"]).to_list())
    middle = offsets[len(offsets) // 2]
    error = max(middle - offsets[0], offsets[-1] - middle)
    return Shift(burst, middle, error, min(both["ns"]), max(both["ns"]))


def move(frame: pl.DataFrame, times: list[str], by: list[Shift], when: str) -> pl.DataFrame:
    """`frame` with the columns `times` moved where `when` lies in a burst's interval, both ends included."""
    offset = pl.lit(0, dtype=pl.Int64)
    for one in by:
        inside = pl.col(when).is_between(one.start_ns, one.end_ns)
        offset = pl.when(inside).then(pl.lit(one.offset_ns, dtype=pl.Int64)).otherwise(offset)
    moved = frame.with_columns(_offset=offset)
    return moved.with_columns(pl.col(name) + pl.col("_offset") for name in times).drop("_offset")
