"""From each kernel to the op whose work it does."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.work import graphs, position
from fathom.analysis.work.communication import RECORD
from fathom.analysis.work.compiled import PREFIX
from fathom.analysis.work.tree import BURST, NONE, Flags, Rows, grow, nearest, rows_of

# Bursts of counters have no ops, and no step of the ledger is in them: their kernels stay without links.
LINKED = pl.col("phase").ne_missing("counters")
_COMPILED = "a compiled kernel whose arguments were not recorded"


class Links(msgspec.Struct):
    """Arrays over kernels; rows are rows of the ops table, NONE where there is none."""

    op: Rows  # innermost op that ran at the launch
    owner: Rows  # op whose work the kernel does
    instance: Rows  # which execution of the owner: kernels that share both share its work
    why: pl.Series  # reason where there is no owner
    parent: Rows  # over ops: row of the caller


def chosen(links: Links, ops: Flags, kernels: Flags) -> Links:
    """The links among the rows that the masks select, numbered anew; no kernel may link to a row left out."""
    rows = np.append(np.where(ops, np.cumsum(ops) - 1, NONE), NONE)  # NONE stays what it is
    return Links(
        rows[links.op[kernels]],
        rows[links.owner[kernels]],
        links.instance[kernels],
        links.why.filter(pl.Series(kernels)),
        rows[links.parent[ops]],
    )


def connect(
    ops: pl.DataFrame, launches: pl.DataFrame, kernels: pl.DataFrame, steps: pl.DataFrame | None = None
) -> Links:
    """Owners by the launching op, by a graph's capture, or by position in a burst that has shapes."""
    tree = grow(ops)
    launch = launch_rows(launches, kernels)
    by_launch = rows_of(ops, launches, "op")
    op = np.where(launch >= 0, by_launch[launch], NONE) if launches.height else launch.copy()
    owner = nearest(tree, op)
    once = np.zeros(kernels.height, dtype=np.int64)
    links = Links(op, owner, once, _reasons(ops, kernels, launch, op, owner), tree.parent)
    replayed = graphs.replayed(launches, launch)
    if replayed.any():
        found = graphs.owners(ops, launches, kernels, launch, replayed, nearest(tree, by_launch))
        _assign(links, found, replayed)
    shapeless = _without_shapes(ops, kernels) & ~replayed & ~_told(ops, owner)
    if shapeless.any():
        marks = position.marks(ops, steps)
        found = position.owners(ops, launches, kernels, launch, links.owner, shapeless, marks)
        _assign(links, _with_first_reason(links, found), shapeless)
    return links


def _with_first_reason(links: Links, found: pl.DataFrame) -> pl.DataFrame:
    """Where no position fits because the kernel never had an owner, that reason says more."""
    first = links.why.gather(found["kernel"])
    unmatched = pl.col("why") == position.UNMATCHED
    return found.with_columns(why=pl.when(unmatched).then(pl.coalesce(first, "why")).otherwise("why"))


def _assign(links: Links, found: pl.DataFrame, where: Flags) -> None:
    """Take over kernel, op, owner, instance and why for the kernels `where`."""
    links.owner[where] = NONE
    found = found.sort("kernel")  # polars before 2 scatters in order alone
    rows = found["kernel"].to_numpy()
    links.owner[rows] = found["owner"].fill_null(NONE).to_numpy()
    links.instance[rows] = found["instance"].fill_null(0).to_numpy()
    links.why = links.why.scatter(rows, found["why"])


def launch_rows(launches: pl.DataFrame, kernels: pl.DataFrame) -> Rows:
    """The row of the launch of each kernel, NONE where it was not recorded."""
    key = [*BURST, "correlation"]
    first = (
        launches.select(key)
        .with_row_index("launch")
        .filter(pl.col("correlation").is_not_null())
        .unique(key, keep="first")
    )
    found = kernels.select(key).join(first, on=key, how="left", nulls_equal=True, maintain_order="left")
    return found["launch"].cast(pl.Int64).fill_null(NONE).to_numpy().copy()


def _told(ops: pl.DataFrame, owner: Rows) -> Flags:
    """Kernels of collectives: their message is recorded without shapes too."""
    if not ops.height:
        return np.zeros(len(owner), dtype=bool)
    message = (ops["name"] == RECORD).fill_null(False) & ops["values"].is_not_null()
    return (owner >= 0) & message.to_numpy()[np.maximum(owner, 0)]


def _without_shapes(ops: pl.DataFrame, kernels: pl.DataFrame) -> Flags:
    """Kernels of bursts whose ops were recorded without shapes."""
    shaped = ops.filter(pl.col("shapes").is_not_null()).select(BURST).unique().with_columns(shaped=True)
    found = kernels.select(BURST).join(shaped, on=BURST, how="left", nulls_equal=True, maintain_order="left")
    return ~found["shaped"].fill_null(False).to_numpy()


def _reasons(ops: pl.DataFrame, kernels: pl.DataFrame, launch: Rows, op: Rows, owner: Rows) -> pl.Series:
    """Why kernels have no owner; null for those that have one."""
    names = ops["name"].gather(pl.Series(np.maximum(op, 0))) if ops.height else pl.Series([None] * len(op))
    frame = pl.DataFrame({"kernel": kernels["name"], "op_name": names}).with_columns(
        launch=pl.Series(launch), op=pl.Series(op), owner=pl.Series(owner)
    )
    return frame.select(
        pl.when(pl.col("owner") >= 0)
        .then(None)
        .when(pl.col("launch") < 0)
        .then(pl.lit("its launch was not recorded"))
        .when(pl.col("kernel").str.starts_with(PREFIX))
        .then(pl.lit(_COMPILED))
        .when(pl.col("op") < 0)
        .then(pl.lit("launched outside any recorded op"))
        .otherwise(pl.format("no formula for {}", "op_name"))
        .cast(pl.String)
        .alias("why")
    )["why"]
