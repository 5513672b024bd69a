"""Replayed CUDA graphs: match each node with the op that launched it during capture, by order.

All device work of a replay has the correlation of the call that launched the graph. During capture,
launches are recorded but nothing runs: the kinds of launches, in order, must equal the kinds of nodes.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.work.tree import Flags, Rows, signatures

NOT_RECORDED = "graph replayed; its capture was not recorded"
_REPLAY = "GraphLaunch"
_BEGIN, _END = "StreamBeginCapture", "StreamEndCapture"
_KIND_OF_API = {
    "LaunchKernel": "K",
    "LaunchCooperative": "K",
    "ModuleLaunch": "K",
    "Memcpy": "C",
    "Memset": "S",
}
_KIND_OF_WORK = {"compute": "K", "collective": "K", "copy": "C", "set": "S"}


def replayed(launches: pl.DataFrame, launch: Rows) -> Flags:
    """Return a mask of the kernels that a graph launch started; `launch` has the row of each launch."""
    if not launches.height:
        return np.zeros(len(launch), dtype=bool)
    is_graph = filled(launches["api"], "").str.contains(_REPLAY, literal=True).to_numpy()
    return (launch >= 0) & is_graph[np.maximum(launch, 0)]


def owners(
    ops: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    launch: Rows,
    where: Flags,
    owner_of_launch: Rows,
) -> pl.DataFrame:
    """Return kernel, owner, instance (one per replay) and why of the replayed kernels in the mask `where`."""
    nodes = _nodes(kernels, launch, where)
    replays = nodes.group_by("replay").agg(
        kinds=pl.col("kind").str.join(), parallel=(pl.col("start_ns") < pl.col("before")).any()
    )
    captured = _captured(launches, launch, owner_of_launch)
    graphs = _distinct(ops, captured)
    matched = nodes.join(replays, on="replay").join(graphs, on="kinds", how="left")
    matched = matched.join(captured, on=["capture", "place"], how="left")
    return matched.select(
        "kernel",
        owner=pl.when(pl.col("parallel") | (pl.col("alike") > 1)).then(None).otherwise(pl.col("owner")),
        instance=pl.col("replay") + 1,
        why=_why(),
    )


def _why() -> pl.Expr:
    return (
        pl.when(pl.col("capture").is_null())
        .then(pl.lit(NOT_RECORDED))
        .when(pl.col("parallel"))
        .then(pl.lit("graph replayed; its nodes ran side by side, so their order does not identify them"))
        .when(pl.col("alike") > 1)
        .then(pl.lit("graph replayed; several captures have the same launches"))
        .when(pl.col("owner") < 0)
        .then(pl.lit("graph replayed; no formula for the op that was captured"))
        .otherwise(None)
        .cast(pl.String)
    )


def _nodes(kernels: pl.DataFrame, launch: Rows, where: Flags) -> pl.DataFrame:
    """Return the replayed kernels, sorted: kernel, replay (row of its launch), place, kind, start, before."""
    return (
        kernels.select("start_ns", "end_ns", kind=pl.col("kind").replace_strict(_KIND_OF_WORK, default="?"))
        .with_row_index("kernel")
        .with_columns(pl.col("kernel").cast(pl.Int64), replay=pl.Series(launch))
        .filter(pl.Series(where))
        .sort("replay", "start_ns")
        .with_columns(
            place=pl.int_range(pl.len()).over("replay"),
            before=pl.col("end_ns").cum_max().shift(1).over("replay"),
        )
    )


def _captured(launches: pl.DataFrame, launch: Rows, owner_of_launch: Rows) -> pl.DataFrame:
    """Return the launches during captures, which started nothing: capture, place, kind, owner."""
    api = filled(launches["api"], "")
    ran = np.zeros(launches.height, dtype=bool)
    ran[launch[launch >= 0]] = True
    begins = np.sort(launches["start_ns"].filter(api.str.contains(_BEGIN, literal=True)).to_numpy())
    ends = np.sort(launches["start_ns"].filter(api.str.contains(_END, literal=True)).to_numpy())
    start = launches["start_ns"].to_numpy()
    begun, ended = np.searchsorted(begins, start), np.searchsorted(ends, start)
    kind = pl.coalesce(
        pl.when(pl.col("api").str.contains(name, literal=True)).then(pl.lit(letter))
        for name, letter in _KIND_OF_API.items()
    )
    return (
        pl.DataFrame({"api": api, "start_ns": launches["start_ns"]})
        .select("start_ns", kind=kind)
        .with_columns(
            capture=pl.Series(begun.astype(np.int64)),
            inside=pl.Series((begun == ended + 1) & ~ran),
            owner=pl.Series(owner_of_launch),
        )
        .filter(pl.col("inside") & pl.col("kind").is_not_null())
        .sort("start_ns")
        .with_columns(place=pl.int_range(pl.len()).over("capture"))
        .select("capture", "place", "kind", "owner")
    )


def _distinct(ops: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """Return captures by the kinds of all launches, joined.

    Columns: kinds, capture (the first one) and alike (the number of different captures with these).
    """
    rows = np.maximum(captured["owner"].to_numpy(), 0)
    calls = signatures(ops, rows) if ops.height else pl.Series(rows)
    texts = captured.with_columns(call=pl.when(pl.col("owner") >= 0).then(calls)).group_by("capture")
    graphs = texts.agg(kinds=pl.col("kind").str.join(), calls=pl.col("call").implode().hash().first())
    return graphs.group_by("kinds").agg(capture=pl.col("capture").min(), alike=pl.col("calls").n_unique())
