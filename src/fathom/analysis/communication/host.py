"""Collectives that threads of the host carry out, as gloo, MPI and UCC do."""

from __future__ import annotations

import polars as pl

from fathom.analysis.communication.operations import operation

BACKENDS = r"^(?:gloo|mpi|ucc):"  # prefix of the region that a backend's thread opens around a collective


def on_host(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives that host threads ran: their regions among `ops`, in order of their starts.

    A collective starts when a thread of the backend takes it from the queue; `stream` is that thread.
    """
    regions = ops.filter(pl.col("kind") == "annotation", pl.col("name").str.contains(BACKENDS))
    names = {name: operation(name.partition(":")[2]) for name in regions["name"].unique().to_list()}
    named = pl.col("name").replace_strict(names, default=None, return_dtype=pl.String)
    return regions.select(
        "start_ns", "end_ns", "name", "burst", "phase", stream="thread", operation=named
    ).sort("start_ns")
