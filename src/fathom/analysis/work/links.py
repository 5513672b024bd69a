"""Link each kernel to the op whose work it does."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.work import graphs, position
from fathom.analysis.work.communication import RECORD
from fathom.analysis.work.compiled import PREFIX
from fathom.analysis.work.tree import BURST, NONE, Flags, Rows, grow, nearest, rows_of

# Bursts that record counters have no ops and no ledger steps, so their kernels are not linked.
LINKED = pl.col("phase").ne_missing("counters")
_COMPILED = "a compiled kernel whose arguments were not recorded"


class Links(msgspec.Struct):
    """Rows of the table `ops`, as arrays over kernels; NONE means no row."""

    op: Rows  # innermost op at the launch
    owner: Rows  # op whose work the kernel does
    instance: Rows  # execution of the owner: kernels with the same owner and instance share its work
    why: pl.Series  # reason for a missing owner
    parent: Rows  # over ops: row of the caller


def chosen(links: Links, ops: Flags, kernels: Flags) -> Links:
    """Return the links between the rows in the masks, renumbered; no other rows may be linked."""
    rows = np.append(np.where(ops, np.cumsum(ops) - 1, NONE), NONE)  # NONE stays NONE
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
    """Link kernels to owners by launching op, by a graph's capture, or by position in a burst with shapes."""
    tree = grow(ops)
    launch = launch_rows(launches, kernels)
    by_launch = rows_of(ops, launches, "op")
    op = np.where(launch >= 0, by_launch[launch], NONE) if launches.height else launch.copy()
    owner = nearest(tree, op)
    once = np.zeros(kernels.height, dtype=np.int64)
    links = Links(op, owner, once, _reasons(ops, kernels, launch, op, owner), tree.parent)
    replayed = graphs.replayed(launches, launch)
    if replayed.any():
        matched = graphs.owners(ops, launches, kernels, launch, replayed, nearest(tree, by_launch))
        _assign(links, matched, replayed)
    shapeless = _without_shapes(ops, kernels) & ~replayed & ~_sized(ops, owner)
    if shapeless.any():
        marks = position.marks(ops, steps)
        matched = position.owners(ops, launches, kernels, launch, links.owner, shapeless, marks)
        _assign(links, _with_first_reason(links, matched), shapeless)
    return links


def _with_first_reason(links: Links, matched: pl.DataFrame) -> pl.DataFrame:
    """Return the matches; unmatched kernels get the reason why their own burst has no owner, if any."""
    first = links.why.gather(matched["kernel"])
    unmatched = pl.col("why") == position.UNMATCHED
    return matched.with_columns(why=pl.when(unmatched).then(pl.coalesce(first, "why")).otherwise("why"))


def _assign(links: Links, matched: pl.DataFrame, where: Flags) -> None:
    """Set owner, instance and why of the kernels in the mask `where`."""
    links.owner[where] = NONE
    matched = matched.sort("kernel")  # polars before 2 requires sorted rows for scatter
    rows = matched["kernel"].to_numpy()
    links.owner[rows] = filled(matched["owner"], NONE).to_numpy()
    links.instance[rows] = filled(matched["instance"], 0).to_numpy()
    links.why = links.why.scatter(rows, matched["why"])


def launch_rows(launches: pl.DataFrame, kernels: pl.DataFrame) -> Rows:
    """Return the row of each kernel's launch; NONE if it was not recorded."""
    key = [*BURST, "correlation"]
    first = (
        launches.select(key)
        .with_row_index("launch")
        .filter(pl.col("correlation").is_not_null())
        .unique(key, keep="first")
    )
    joined = kernels.select(key).join(first, on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined["launch"].cast(pl.Int64).fill_null(NONE).to_numpy().copy()


def _sized(ops: pl.DataFrame, owner: Rows) -> Flags:
    """Return a mask of the collectives whose message size was recorded, which need no shapes."""
    if not ops.height:
        return np.zeros(len(owner), dtype=bool)
    message = (ops["name"] == RECORD).fill_null(False) & ops["values"].is_not_null()
    return (owner >= 0) & message.to_numpy()[np.maximum(owner, 0)]


def _without_shapes(ops: pl.DataFrame, kernels: pl.DataFrame) -> Flags:
    """Return a mask of the kernels in bursts whose ops were recorded without shapes."""
    shaped = ops.filter(pl.col("shapes").is_not_null()).select(BURST).unique().with_columns(shaped=True)
    joined = kernels.select(BURST).join(shaped, on=BURST, how="left", nulls_equal=True, maintain_order="left")
    return ~filled(joined["shaped"], False).to_numpy()


def _reasons(ops: pl.DataFrame, kernels: pl.DataFrame, launch: Rows, op: Rows, owner: Rows) -> pl.Series:
    """Return the reason why each kernel has no owner; null if it has one."""
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
