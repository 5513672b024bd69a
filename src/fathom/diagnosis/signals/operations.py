"""Work of a processor by the ops that ask for it."""

from __future__ import annotations

import polars as pl

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals.doubles import with_own_time
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Work
from fathom.diagnosis.signals.value import signal


@signal("host.work", "ms a step")
def work(recorded: Recorded) -> list[Work]:
    """Rows of a processor's ledger by path of ops, longest first: each row's time as its ops share it."""
    rows = _with_path(recorded).group_by("name", "path", maintain_order=True)
    groups = rows.agg(
        ns=pl.col("took").filter("inside").sum(),
        count=pl.col("inside").sum(),
        source=pl.col("ran").drop_nulls().mode().sort().first(),
    ).filter(pl.col("ns") > 0)
    groups = groups.with_columns(share=pl.col("ns") / pl.col("ns").sum().over("name"))
    ledger = {row.detail: row.ms for row in recorded.ledger if row.entry == Entry.OPS}
    works = [
        Work(
            Entry.OPS,
            row["name"],
            ledger[row["name"]] * row["share"],
            row["count"] / recorded.steps,
            tuple(row["path"]),
            source=row["source"],
        )
        for row in groups.iter_rows(named=True)
        if row["name"] in ledger
    ]
    return sorted(works, key=lambda work: -work.ms)


def _with_path(recorded: Recorded) -> pl.DataFrame:
    """The ops with `path`, the names from the outermost op, and `took`, their own nanoseconds."""
    paths = [list(recorded.paths.names(row)) for row in range(recorded.ops.height)]
    ops = recorded.ops.with_columns(
        path=pl.Series(paths, dtype=pl.List(pl.String)), inside=recorded.inside(recorded.ops)
    )
    return with_own_time(ops.filter(kind="op"))
