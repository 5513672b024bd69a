"""Ranks that arrive late at collectives, and what their lateness costs the job."""

from __future__ import annotations

from collections import Counter

import polars as pl

from fathom.analysis.communication.results import LateRank
from fathom.units import NS_PER_MS

MEETING = ["burst", "step", "name", "place"]  # identifies a collective over all ranks


def late_ranks(arrivals: pl.DataFrame | None) -> list[LateRank]:
    """Return the ranks that were the last at a collective, costliest first; [] if arrivals are unknown.

    `arrivals` has a row per rank and collective: rank, start_ns, operation, and the columns of MEETING. Each
    collective ends at about the same time on all ranks, so lateness at one does not carry over to the next.
    """
    if arrivals is None or arrivals.is_empty() or arrivals["rank"].n_unique() < 2:
        return []
    steps = arrivals.select("burst", "step").unique().height
    meetings = (
        arrivals.sort("start_ns")
        .group_by(MEETING, maintain_order=True)
        .agg(
            rank=pl.col("rank").last(),
            operation=pl.col("operation").last(),
            cost=pl.col("start_ns").get(-1) - pl.col("start_ns").get(-2),
            behind=pl.col("start_ns").last() - pl.col("start_ns").median(),
        )
    )
    lost = max(int(meetings["cost"].sum()), 1)
    rows = [
        LateRank(
            rank=rank,
            last=mine.height,
            of=meetings.height,
            operations=dict(Counter(mine["operation"].to_list())),
            behind_ms=float(mine["behind"].median() or 0.0) / NS_PER_MS,  # type: ignore[arg-type]
            cost_ms=int(mine["cost"].sum()) / steps / NS_PER_MS,
            score=int(mine["cost"].sum()) / lost,
        )
        for (rank,), mine in meetings.group_by("rank")
    ]
    return sorted(rows, key=lambda row: -row.cost_ms)
