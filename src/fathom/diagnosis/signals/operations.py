"""Work of a CPU by op."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Work
from fathom.diagnosis.signals.value import signal


@signal("host.work", "ms per step")
def work(recorded: Recorded) -> list[Work]:
    """Rows of a CPU's ledger by path of ops, longest first; each row's time is divided among its ops."""
    ops = recorded.ops.with_row_index("place").with_columns(inside=recorded.inside(recorded.ops))
    rows = _with_path(recorded, ops).group_by("name", "path", maintain_order=True)
    groups = rows.agg(
        ns=pl.col("took").filter("inside").sum(),
        count=pl.col("inside").sum(),
        source=pl.col("ran").drop_nulls().mode().sort().first(),
    ).filter(pl.col("ns") > 0)
    return sorted(_in_ledger(recorded, groups), key=lambda work: -work.ms)


def work_by_shapes(recorded: Recorded, ops: pl.DataFrame) -> list[Work]:
    """Rows of a CPU's ledger by path and shapes; `ops`, with their `place`, divide the time of each row."""
    rows = _with_path(recorded, ops).group_by("name", "path", "shapes", maintain_order=True)
    return list(_in_ledger(recorded, rows.agg(ns=pl.col("took").sum())))


def with_own_time(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` with `took`: nanoseconds without the ops beneath."""
    ops = ops.with_columns(took=pl.col("end_ns") - pl.col("start_ns"))
    beneath = ops.group_by(id="parent").agg(beneath=pl.col("took").sum())
    ops = ops.join(beneath, on="id", how="left")
    return ops.with_columns(took=pl.col("took") - pl.col("beneath").fill_null(0))


def _with_path(recorded: Recorded, ops: pl.DataFrame) -> pl.DataFrame:
    """The ops with `path`, the names from the outermost op, and `took`, their own nanoseconds."""
    timed = with_own_time(ops.filter(kind="op"))
    paths = [list(recorded.paths.names(place)) for place in timed["place"]]
    return timed.with_columns(path=pl.Series(paths, dtype=pl.List(pl.String)))


def _in_ledger(recorded: Recorded, groups: pl.DataFrame) -> Iterator[Work]:
    """Work of the groups, each with its share (by `ns`) of the ledger's row of its name."""
    ledger = {row.detail: row.ms for row in recorded.ledger if row.entry == Entry.OPS}
    groups = groups.with_columns(share=pl.col("ns") / pl.col("ns").sum().over("name"))
    for row in groups.filter(pl.col("ns") > 0).iter_rows(named=True):
        if row["name"] in ledger:
            yield Work(
                Entry.OPS,
                row["name"],
                ledger[row["name"]] * row["share"],
                row.get("count", 0) / recorded.steps,
                tuple(row["path"]),
                row.get("shapes"),
                source=row.get("source"),
            )
