"""Rows of the table `counters`: folded samples, and attributes that launches report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fathom.analysis.device import detail
from fathom.analysis.folding.families import AND, Resolved
from fathom.analysis.folding.kinds import bare, is_share, kind_of
from fathom.analysis.folding.readings import Readings
from fathom.analysis.results import Abstained
from fathom.sounding import COUNTERS, conform

if TYPE_CHECKING:  # its modules are only needed to fold
    from fathom.analysis.folding.fold import Folded

SAMPLED, STATIC = "PM sampling", "static"  # sources of rows
SLACK = 0.02  # tolerance beyond 0 and 1
ERRORS = 2.0


def possible(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Abstained]]:
    """Drop shares that lie outside 0 to 1 by more than their errors, and report them.

    They occur if a kernel has almost no traffic, so that the fit assigns it the share of its neighbours.
    """
    shares = [name for name in frame["counter"].unique().to_list() if is_share(name)]
    beyond = pl.max_horizontal(pl.col("value") - 1, -pl.col("value"))
    impossible = pl.col("counter").is_in(shares) & (
        beyond > pl.max_horizontal(ERRORS * pl.col("error"), SLACK)
    )
    dropped = frame.filter(impossible).group_by("family", maintain_order=True).agg("counter", "value")
    return frame.filter(~impossible), [_why(*row) for row in dropped.iter_rows()]


def _why(family: str, counters: list[str], values: list[float]) -> Abstained:
    what = f"{', '.join(counters)} of {family}"
    said = ", ".join(f"{100 * value:.0f} %" for value in values)
    return Abstained(
        what, f"folding gives {said}, which is not a possible share: its own traffic is too small"
    )


def less_sure(frame: pl.DataFrame, relative: dict[str, float]) -> pl.DataFrame:
    """Add each family's relative error in quadrature; a group gets the largest error of its families."""
    names = frame["family"].unique().to_list() if relative else []
    share = {name: max(relative.get(member, 0.0) for member in name.split(AND)) for name in names}
    if not share:
        return frame
    added = pl.col("value") * pl.col("family").replace_strict(share, return_dtype=pl.Float64)
    return frame.with_columns(error=(pl.col("error") ** 2 + added**2).sqrt())


def rows_of(readings: Readings, folded: Folded, resolved: list[Resolved]) -> pl.DataFrame:
    """Return rows of COUNTERS; counters that were not sampled while a family ran have none."""
    columns = [row.column for row in resolved]
    values, errors = folded.values[columns], folded.errors[columns]
    width = len(readings.names)
    units = [kind.unit if (kind := kind_of(name)) else "" for name in readings.names]
    frame = pl.DataFrame(
        {
            "device": readings.device,
            "family": [row.name for row in resolved for _ in range(width)],
            "counter": [bare(name) for name in readings.names] * len(resolved),
            "value": values.ravel(),
            "unit": units * len(resolved),
            "samples": np.repeat(folded.samples[columns], width),
            "error": errors.ravel(),
            "source": SAMPLED,
        }
    )
    return conform("counters", frame.filter(pl.col("value").is_finite(), pl.col("error").is_finite()))


_UNITS = {
    "launch__registers_per_thread": "registers/thread",
    "launch__shared_mem_per_block": "B/block",
    "launch__local_mem_per_thread": "B/thread",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads",
}
_LAUNCHED = ("compute", "collective")


def static_attributes(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return rows of COUNTERS: means over a family's launches, named as in Nsight Compute.

    The errors are standard errors of the means. Attributes that a family's launches lack have no row.
    """
    launched = kernels.filter(pl.col("kind").is_in(_LAUNCHED))
    own = (
        launched.select("device", detail().alias("family"), *_attributes(launched))
        .unpivot(index=["device", "family"], variable_name="counter", value_name="attribute")
        .drop_nulls("attribute")
    )
    means = own.group_by("device", "family", "counter").agg(
        value=pl.col("attribute").mean(),
        samples=pl.len(),
        error=(pl.col("attribute").std() / pl.len().sqrt()).fill_null(0.0),
    )
    units = pl.col("counter").replace_strict(_UNITS, return_dtype=pl.String)
    ordered = means.with_columns(unit=units, source=pl.lit(STATIC)).sort("device", "family", "counter")
    return conform("counters", ordered) if ordered.height else pl.DataFrame(schema=COUNTERS)


def _attributes(launched: pl.DataFrame) -> list[pl.Expr | pl.Series]:
    return [
        pl.col("registers").cast(pl.Float64).alias("launch__registers_per_thread"),
        pl.col("shared_bytes").cast(pl.Float64).alias("launch__shared_mem_per_block"),
        pl.col("local_bytes").cast(pl.Float64).alias("launch__local_mem_per_thread"),
        _products(launched["grid"]).alias("launch__grid_size"),
        _products(launched["block"]).alias("launch__block_size"),
    ]


def _products(shapes: pl.Series) -> pl.Series:
    """Return the number of elements of shapes such as 64x8x1, computed once per distinct shape."""
    different = shapes.unique().drop_nulls().rename("shape")
    sides = pl.col("shape").str.split("x").list.eval(pl.element().cast(pl.Float64, strict=False))
    complete = sides.list.eval(pl.element().is_not_null()).list.all() & (sides.list.len() > 0)
    product = pl.when(complete).then(sides.list.eval(pl.element().product()).list.first())
    products = different.to_frame().select(product.alias("product"))["product"]
    return shapes.replace_strict(different, products, default=None, return_dtype=pl.Float64)
