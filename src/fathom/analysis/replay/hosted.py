"""Collectives that host threads carry out, as device work: called, queued, and waited for by the program."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.communication import operation
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import NOTHING, covered, merge, of_rows
from fathom.analysis.replay.team import PEERS, team_threads

CALLS = r"^c10d::(.+?)_?$"  # ops that put a collective into the backend's queue
LONG_NS = 20_000  # shorter waits in which no collective ends are gaps between ops
CALLED = ["thread", "api", "start_ns", "end_ns", "correlation"]


def queued(meetings: pl.DataFrame, ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the collectives of one burst as pieces of device work, with the call of each.

    A backend's threads take collectives from their queue in order, so the k-th call of an operation is that
    of its k-th collective.
    """
    calls = _calls(ops, host)
    place = pl.int_range(pl.len()).over("operation")
    named = calls.with_columns(place=place).select("operation", "place", "correlation", launched="start_ns")
    rows = meetings.sort("start_ns", maintain_order=True).with_columns(place=place)
    rows = rows.join(named, on=["operation", "place"], how="left", maintain_order="left")
    early = pl.col("launched") > pl.col("start_ns")  # queued before the burst
    return rows.with_columns(
        pl.when(~early).then("launched"),
        pl.when(~early).then("correlation"),
        device=pl.lit(None, pl.Int64),
        kind=pl.lit("collective"),
        family="name",
        direction=pl.lit(None, pl.String),
    )


def calls_and_waits(pieces: pl.DataFrame, ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the calls behind `pieces`, and the program's waits during them, with the columns of launches."""
    waiting = merge(NOTHING, *(spans for (cause, _), spans in host.activity(host.caller) if cause == PEERS))
    ends = np.sort(pieces["end_ns"].to_numpy())
    ended = np.searchsorted(ends, waiting.ends, "right") > np.searchsorted(ends, waiting.starts, "right")
    during = ended | ((covered(of_rows(pieces), *waiting) > 0) & (waiting.ends - waiting.starts > LONG_NS))
    waits = pl.DataFrame({"start_ns": waiting.starts[during], "end_ns": waiting.ends[during]}).select(
        pl.lit(host.caller, pl.Int64).alias("thread"),
        pl.lit(PEERS).alias("api"),
        pl.col("start_ns", "end_ns").cast(pl.Int64),
        pl.lit(None, pl.Int64).alias("correlation"),
    )
    return pl.concat([_calls(ops, host).select(CALLED), waits.select(CALLED)])


def _calls(ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the calls of collectives, numbered in order of their starts."""
    mine = pl.col("thread").is_in(list(team_threads(host)))
    calls = ops.filter(mine, pl.col("name").str.contains(CALLS)).sort("start_ns", maintain_order=True)
    names = {name: operation(name[len("c10d::") :].rstrip("_")) for name in calls["name"].unique().to_list()}
    named = pl.col("name").replace_strict(names, default=None, return_dtype=pl.String)
    return calls.with_columns(operation=named, api="name", correlation=pl.int_range(pl.len(), dtype=pl.Int64))
