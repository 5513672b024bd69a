"""Jitter: how much the same collective varies over steps, split into late arrival and slow transfer."""

from __future__ import annotations

import polars as pl

from fathom.analysis.communication.late import MEETING, in_whole_steps
from fathom.analysis.communication.results import Jitter
from fathom.units import NS_PER_MS

FEWEST = 4  # steps
_SAME = ["name", "place"]  # identifies a collective within every step
_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_PARTS = {
    "total": pl.col("end") - pl.col("median"),
    "late": pl.col("last") - pl.col("median"),
    "transfer": pl.col("end") - pl.col("last"),
}


def jitter_of(arrivals: pl.DataFrame | None) -> list[Jitter]:
    """Return the spread of each collective that recurs in FEWEST steps, largest spread first.

    `arrivals` are those of `late_ranks`, with `end_ns` on the same clock.
    """
    arrivals = in_whole_steps(arrivals)
    if arrivals is None:
        return []
    start = pl.col("start_ns")
    meetings = arrivals.group_by(MEETING).agg(
        operation=pl.col("operation").first(),
        last=start.max(),
        median=start.quantile(0.5, "lower"),
        end=pl.col("end_ns").median(),
    )
    figures = {
        f"{part}_{name}_ms": (time.quantile(q, "linear") / NS_PER_MS).clip(0.0)
        for part, time in _PARTS.items()
        for name, q in _PERCENTILES.items()
    }
    same = meetings.group_by(_SAME).agg(pl.col("operation").first(), n=pl.len(), **figures)
    same = same.filter(pl.col("n") >= FEWEST).sort(*_SAME)
    rows = [Jitter(**row) for row in same.iter_rows(named=True)]
    return sorted(rows, key=lambda row: row.total_p50_ms - row.total_p99_ms)
