"""The work of every op in a table, and its sums by op name."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.intervals import Spans, containing
from fathom.analysis.roofline import needs
from fathom.analysis.work.compiled import TEMPLATE
from fathom.analysis.work.recompute import recomputed
from fathom.analysis.work.registry import PRODUCTS, evaluate
from fathom.analysis.work.tree import grow
from fathom.machine import Limits

PARTS = "its parts carry its work"
NO_FORMULA = "no formula for this operator"
UNLIKE = "the step recorded with shapes called it a different number of times"
MOST = 0.5  # of the windows
SIGNATURE = ["name", "shapes", "dtypes", "values"]
_FIGURES = ("flops", "bytes", "dtype", "need_ns", "bound", "product", "again", "unit")
# `is_product` as an expression.
IS_PRODUCT = pl.col("name").is_in(sorted(PRODUCTS)) | pl.col("name").str.starts_with(TEMPLATE)
WORK = {"flops": pl.Float64, "bytes": pl.Float64, "work_dtype": pl.String, "abstained": pl.String}


def annotate_ops(ops: pl.DataFrame) -> pl.DataFrame:
    """Return `ops` with the columns of WORK and `again`: whether the op repeats part of the forward pass.

    `abstained` is the reason for a null figure. Columns may be summed: if the parts of an op are in the
    table, only the parts have figures.
    """
    tree = grow(ops)
    bears = tree.known & ~tree.covered
    works = works_of(ops.select(SIGNATURE).filter(pl.Series(bears)))
    filled = _default(tree.idle, tree.composite | tree.covered)
    if works.height:
        rows = np.where(bears, np.cumsum(bears) - 1, -1)
        own = works.select(pl.all().gather(pl.Series(np.maximum(rows, 0))))
        filled = pl.select(
            pl.when(pl.Series(bears)).then(own[name]).otherwise(filled[name]).alias(name) for name in WORK
        )
    return ops.with_columns(filled.get_columns(), again=pl.Series(recomputed(ops, tree.parent)))


def _default(idle: np.ndarray, composite: np.ndarray) -> pl.DataFrame:
    """Return the columns of WORK for ops without a formula: zeros for idle ones, else nulls and reasons."""
    zero = pl.when(pl.Series(idle)).then(0.0)
    why = pl.when(pl.Series(idle)).then(None).when(pl.Series(composite)).then(pl.lit(PARTS))
    return pl.select(
        zero.alias("flops"),
        zero.alias("bytes"),
        pl.repeat(None, len(idle), dtype=pl.String).alias("work_dtype"),
        why.otherwise(pl.lit(NO_FORMULA)).alias("abstained"),
    )


def works_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of WORK for `calls`; equal calls are evaluated once.

    `calls` has the columns of SIGNATURE and optionally `element`.
    """
    keys = calls.columns
    different = calls.unique(maintain_order=True)
    works = [evaluate(*row) for row in different.rows()]
    table = different.with_columns(
        pl.Series("flops", [work.flops for work in works], dtype=pl.Float64),
        pl.Series("bytes", [work.bytes for work in works], dtype=pl.Float64),
        pl.Series("work_dtype", [work.dtype for work in works], dtype=pl.String),
        pl.Series("abstained", [work.why or None for work in works], dtype=pl.String),
    )
    return calls.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left").select(list(WORK))


def op_work(
    ops: pl.DataFrame,
    windows: pl.DataFrame,
    steps: pl.DataFrame | None = None,
    limits: Limits | None = None,
) -> pl.DataFrame:
    """Return the work by op name per used window, for programs without a device.

    The columns are name, flops, bytes, dtype, why, and those of `bounded`. An op belongs to the window in
    which it begins. A figure is null, with the reason in `why`, if any call of that name has none. Windows
    without shapes take the figures of the attribution phase (`steps`), for names that are called equally
    often in most of them: a few may contain an evaluation as well.
    """
    used = windows.filter(pl.col("used")).select("start_ns", "end_ns").sort("start_ns")
    inside = ops.filter(_places(ops["start_ns"], used) >= 0)
    shaped = _shaped_steps(steps) if inside["shapes"].null_count() == inside.height else used.clear()
    if shaped.is_empty():
        return _by_name(inside, used.height, limits).drop("calls")
    model = _by_name(ops.filter(_places(ops["start_ns"], shaped) >= 0), shaped.height, limits)
    each = _calls(inside, used).join(model, on="name", how="left", maintain_order="left")
    same = (pl.col("seen") == pl.col("calls")).fill_null(False).sum().over("name") >= MOST * used.height
    joined = each.with_columns(alike=same).unique("name", maintain_order=True)
    alike = pl.col("alike")
    return joined.select(
        "name",
        *(pl.when(alike).then(pl.col(figure)).alias(figure) for figure in _FIGURES),
        *(
            pl.when(alike).then(pl.col(why)).otherwise(pl.lit(UNLIKE)).alias(why)
            for why in ("why", "unbounded")
        ),
    )


def _shaped_steps(steps: pl.DataFrame | None) -> pl.DataFrame:
    if steps is None:
        return pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})
    shaped = steps.filter((pl.col("phase") == "attribution") & pl.col("parent").is_null())
    return shaped.select(start_ns="mark_ns", end_ns="end_ns").drop_nulls().sort("start_ns")


def _by_name(ops: pl.DataFrame, steps: int, limits: Limits | None) -> pl.DataFrame:
    """Return the work and calls per step by op name, without ops whose parts carry their work."""
    works = _bearing(ops).with_columns(
        product=IS_PRODUCT,
        footprint="bytes",
        direction=pl.lit(None, pl.String),
    )
    works = works.with_columns(needs(works, limits))
    steps = max(steps, 1)
    per_step = [*totals(steps), *bounded(steps), (pl.len() / steps).alias("calls")]
    return works.group_by("name").agg(*per_step).sort("name")


def _bearing(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the ops with their work, without those whose parts carry it."""
    counted = pl.col("kind").is_in(["op", None], nulls_equal=True) & pl.col("abstained").ne_missing(PARTS)
    return annotate_ops(ops).filter(counted)


def _calls(ops: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return `seen`, the number of calls of each name in each window that has any."""
    counted = _bearing(ops)
    placed = counted.with_columns(window=_places(counted["start_ns"], windows))
    return placed.group_by("name", "window").agg(seen=pl.len()).sort("name", "window")


def _places(start: pl.Series, windows: pl.DataFrame) -> pl.Series:
    """Return the window in which each time lies; -1 for none."""
    of = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    return pl.Series(containing(of, start.to_numpy()))


def totals(steps: int) -> list[pl.Expr]:
    """Return aggregates over rows of WORK: sums per step (null unless all known) and the main reason."""
    return [
        *(
            pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum() / steps).alias(name)
            for name in ("flops", "bytes")
        ),
        pl.when(pl.col("work_dtype").drop_nulls().n_unique() == 1)
        .then(pl.col("work_dtype").drop_nulls().first())
        .alias("dtype"),
        pl.col("abstained").drop_nulls().mode().sort().first().fill_null("").alias("why"),
    ]


def bounded(steps: int) -> list[pl.Expr]:
    """Return aggregates over rows of NEED: the ns per step if all are known, and the main ceiling."""
    most = pl.col("bound").sort_by(pl.col("need_ns").sum().over("bound"), descending=True).first()
    known = pl.col("need_ns").null_count() == 0
    return [
        pl.when(known).then(pl.col("need_ns").sum() / steps).alias("need_ns"),
        pl.when(known).then(most).alias("bound"),
        pl.col("unbounded").drop_nulls().mode().sort().first().fill_null("").alias("unbounded"),
        (pl.col("flops").filter("product").sum() / steps).alias("product"),
        (pl.col("flops").filter(pl.col("product") & pl.col("again")).sum() / steps).alias("again"),
        pl.col("unit").filter("product").drop_nulls().mode().sort().first().alias("unit"),
    ]
