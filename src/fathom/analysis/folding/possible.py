"""Shares that cannot be are no measurement: a kernel of next to no traffic is given its neighbours'."""

from __future__ import annotations

import polars as pl

from fathom.analysis.folding.kinds import is_share
from fathom.analysis.results import Abstained

SLACK = 0.02  # beyond 0 and 1
ERRORS = 2.0


def possible(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Abstained]]:
    """The table's rows without shares beyond 0 and 1 by more than their errors, and those in words."""
    shares = [name for name in frame["counter"].unique().to_list() if is_share(name)]
    beyond = pl.max_horizontal(pl.col("value") - 1, -pl.col("value"))
    odd = pl.col("counter").is_in(shares) & (beyond > pl.max_horizontal(ERRORS * pl.col("error"), SLACK))
    told = frame.filter(odd).group_by("family", maintain_order=True).agg("counter", "value")
    return frame.filter(~odd), [_why(*row) for row in told.iter_rows()]


def _why(family: str, counters: list[str], values: list[float]) -> Abstained:
    what = f"{', '.join(counters)} of {family}"
    said = ", ".join(f"{100 * value:.0f} %" for value in values)
    return Abstained(
        what, f"folding gives {said}, which no share can be: it has too little traffic of its own"
    )
