"""Experts on several ranks: the tokens that each of them gets, by the bytes that all-to-alls deliver."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fathom.analysis.communication.results import ExpertLoad

UNEVEN = 1.1  # largest over mean: below it, a call delivers equal parts


def expert_loads(collectives: Mapping[int, pl.DataFrame]) -> list[ExpertLoad]:
    """Return the load of each rank's experts relative to the mean; [] if all-to-alls deliver equal parts.

    `collectives` has those of each rank with the columns of `collectives_of`. The k-th all-to-all of one rank
    is matched with the k-th of the others. One that brings tokens back delivers equal parts, and is left out.
    """
    rows = [_received(rank, calls) for rank, calls in collectives.items()]
    if len(rows) < 2:
        return []
    received, size = pl.concat(rows), pl.col("received")
    uneven = size.max().over("call") > UNEVEN * size.mean().over("call")
    received = received.filter(uneven, pl.len().over("call") == len(rows))
    total = received.group_by("rank").agg(size.sum()).sort("rank")
    mean = total["received"].mean()
    return [ExpertLoad(rank, bytes_ / mean) for rank, bytes_ in total.iter_rows()] if mean else []


def _received(rank: int, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes that each all-to-all delivers to a rank, with the number of the `call`."""
    mine = calls.filter(operation="all_to_all").sort("start_ns")
    return mine.select("received", rank=pl.lit(rank), call=pl.int_range(pl.len())).drop_nulls()
