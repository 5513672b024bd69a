"""Work of a CPU in float64."""

from __future__ import annotations

import polars as pl

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals.operations import with_own_time
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Double
from fathom.diagnosis.signals.shapes import dtypes_of, shapes_of
from fathom.diagnosis.signals.value import signal

NAME = "double"  # among an op's dtypes


@signal("host.doubles", "ms per step")
def doubles(recorded: Recorded) -> list[Double]:
    """Rows of a CPU's ledger that are computed in float64, at least in part: longest first.

    The attribution phase gives the share of an op's calls that takes float64; the ledger gives their time.
    """
    ops = recorded.ops.filter(pl.col("kind") == "op", pl.col("phase") == "attribution")
    if ops["dtypes"].null_count() == ops.height:
        raise UnknownSignalError("dtypes were not recorded")
    shares = _shares(with_own_time(ops))
    doubled = [
        Double(row.detail, row.ms * share, source, module)
        for row in recorded.device.ledger
        if row.entry == Entry.OPS and row.detail in shares
        for share, source, module in [shares[row.detail]]
    ]
    return sorted(doubled, key=lambda op: -op.ms)


def _shares(ops: pl.DataFrame) -> dict[str, tuple[float, str | None, str | None]]:
    """By op: the share of its time in float64, and the line and module of the longest of these calls.

    All backward ops run below the line that starts the backward pass, so ops within a module come first.
    """
    kinds = ops.select("dtypes", "shapes").unique()
    double = [_takes_doubles(*row) for row in kinds.iter_rows()]
    ops = ops.join(kinds.with_columns(double=pl.Series(double, dtype=pl.Boolean)), on=["dtypes", "shapes"])
    ops = ops.with_columns(forward=pl.col("module").is_not_null())
    longest = pl.col("double"), pl.col("forward"), pl.col("took")
    rows = (
        ops.sort(*longest, descending=True)
        .group_by("name", maintain_order=True)
        .agg(
            share=pl.col("took").filter("double").sum() / pl.col("took").sum(),
            source=pl.col("source").first(),
            module=pl.col("module").first(),
        )
        .filter(pl.col("share") > 0)
    )
    return {name: (share, source, module) for name, share, source, module in rows.iter_rows()}


def _takes_doubles(dtypes: str | None, shapes: str | None) -> bool:
    """Whether an op takes a float64 tensor; scalars such as Python floats do not count."""
    sizes = shapes_of(shapes)
    return any(kind == NAME and bool(size) for kind, size in zip(dtypes_of(dtypes), sizes, strict=False))
