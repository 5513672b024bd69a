"""Compute kernels that take longer while collectives run beside them.

Kernels of collectives occupy multiprocessors and memory bandwidth, also while they wait for peers.
"""

from __future__ import annotations

import polars as pl

from fathom.analysis.intervals import Spans, containing, covered, of_rows
from fathom.analysis.work import NONE, Links

ALONE, BESIDE = 0.05, 0.5  # share of a kernel's time with a collective: at most, and at least
ENOUGH = 4  # kernels of each of both
_LIKE = ["family", "op", "shapes"]


def slowed_by_collectives(
    kernels: pl.DataFrame, links: Links, ops: pl.DataFrame, windows: Spans
) -> dict[str, float]:
    """Return the ns that kernels of each family take longer beside collectives than alone, in all windows.

    Kernels of one family are compared with the median of those that the same op launched for the same shapes.
    """
    if not len(windows.starts):
        return {}
    inside = (containing(windows, kernels["start_ns"].to_numpy()) >= 0) & (links.op != NONE)
    inside &= ((kernels["kind"] == "compute") & (kernels["phase"] == "timeline")).to_numpy()
    rows = kernels.filter(pl.Series(inside)).select("family", "start_ns", "end_ns")
    launched = ops.select(op="name", shapes="shapes")[links.op[inside]]
    collectives = of_rows(kernels.filter(kind="collective", phase="timeline"))
    ns = rows["end_ns"] - rows["start_ns"]
    shared = covered(collectives, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    rows = rows.hstack(launched).with_columns(ns=ns, share=pl.Series(shared) / ns.clip(1))
    alone, beside = pl.col("share") <= ALONE, pl.col("share") >= BESIDE
    usual = pl.col("ns").filter(alone).median()
    groups = rows.group_by(_LIKE).agg(
        enough=(alone.sum() >= ENOUGH) & (beside.sum() >= ENOUGH),
        slowed=(pl.col("ns").filter(beside) - usual).sum().clip(0),
    )
    sums = groups.filter("enough").group_by("family").agg(pl.col("slowed").sum())
    return dict(sums.filter(pl.col("slowed") > 0).sort("family").iter_rows())
