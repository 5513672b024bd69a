"""Overlaps of kernels that may begin before their predecessor ends."""

from __future__ import annotations

import polars as pl

from fathom.sounding.kineto import integrity
from fathom.sounding.manifest import Problem


def judged(problems: list[Problem], tables: dict[str, pl.DataFrame]) -> list[Problem]:
    """Judge overlaps on a stream over all bursts of the rank.

    A burst that CUPTI recorded without runtime calls does not show how a kernel was launched: its launches
    are derived from queue times. Other bursts do, and a kernel that one of them launched with permission to
    overlap (programmatic dependent launch) may overlap in every burst.
    """
    kept = [problem for problem in problems if problem.what != integrity.OVERLAP]
    if len(kept) == len(problems):
        return problems
    calls = tables["launches"].unique(["burst", "correlation"], keep="first")
    work = tables["kernels"].join(
        calls.select("burst", "correlation", "api"), on=["burst", "correlation"], how="left"
    )
    free = integrity.may_overlap().fill_null(False).any().over("name")
    work = work.with_columns(api=pl.when(free).then(None).otherwise(pl.col("api")))
    tolerance = integrity.resolution_ns(work["start_ns"].to_numpy())
    integrity.overlaps(work, tolerance, kept)
    return kept
