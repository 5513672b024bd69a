"""Steps that a long run counted instead of recording them one by one: their lengths, in bins."""

from __future__ import annotations

import polars as pl

from fathom.analysis.results import CountedSteps
from fathom.analysis.steps import EPOCH_START
from fathom.sounding import Store
from fathom.timing import weighted_quantile
from fathom.units import NS_PER_MS

_RARE = 0.99


def bins_of(summaries: pl.DataFrame) -> pl.DataFrame:
    """Return the bins of step lengths, shortest first: kind, count, total (ns), ns (their mean length)."""
    bins = summaries.select("kind", count="counts", total="totals_ns").explode("count", "total")
    known = bins.filter(pl.col("count") > 0).with_columns(ns=pl.col("total") / pl.col("count"))
    return known.sort("ns", "kind")


def counted_steps(store: Store, rank: int, kind: str) -> CountedSteps | None:
    """Return the median and the 99th percentile of the counted steps of `kind`; None if there are none."""
    bins = bins_of(store.table("summaries", rank).filter(like(kind)).collect())
    if bins.is_empty():
        return None
    n = int(bins["count"].sum())
    lengths, counts = bins["ns"].to_numpy(), bins["count"].to_numpy()
    usual, rare = (weighted_quantile(lengths, counts, share) / NS_PER_MS for share in (0.5, _RARE))
    return CountedSteps(rank, kind, n, usual, rare, float(bins["total"].sum()) / n / NS_PER_MS)


def like(kind: str) -> pl.Expr:
    """Select the steps of `kind`; a step that starts an epoch counts as its kind."""
    return pl.col("kind").str.strip_suffix(EPOCH_START) == kind.removesuffix(EPOCH_START)
