"""What a launch says of itself, by family, under the names that Nsight Compute gives it."""

from __future__ import annotations

import polars as pl

from fathom.analysis.device import detail
from fathom.sounding import COUNTERS, conform

SOURCE = "static"
_UNITS = {
    "launch__registers_per_thread": "registers/thread",
    "launch__shared_mem_per_block": "B/block",
    "launch__local_mem_per_thread": "B/thread",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads",
}
_LAUNCHED = ("compute", "collective")


def static_attributes(kernels: pl.DataFrame) -> pl.DataFrame:
    """Rows of COUNTERS: mean over a family's launches, with the standard error of that mean.

    Families whose launches do not tell an attribute have no row for it.
    """
    own = (
        kernels.filter(pl.col("kind").is_in(_LAUNCHED))
        .select("device", detail().alias("family"), *_attributes())
        .unpivot(index=["device", "family"], variable_name="counter", value_name="one")
        .drop_nulls("one")
    )
    found = own.group_by("device", "family", "counter").agg(
        value=pl.col("one").mean(),
        samples=pl.len(),
        error=(pl.col("one").std() / pl.len().sqrt()).fill_null(0.0),
    )
    units = pl.col("counter").replace_strict(_UNITS, return_dtype=pl.String)
    ordered = found.with_columns(unit=units, source=pl.lit(SOURCE)).sort("device", "family", "counter")
    return conform("counters", ordered) if ordered.height else pl.DataFrame(schema=COUNTERS)


def _attributes() -> list[pl.Expr]:
    return [
        pl.col("registers").cast(pl.Float64).alias("launch__registers_per_thread"),
        pl.col("shared_bytes").cast(pl.Float64).alias("launch__shared_mem_per_block"),
        pl.col("local_bytes").cast(pl.Float64).alias("launch__local_mem_per_thread"),
        _product("grid").alias("launch__grid_size"),
        _product("block").alias("launch__block_size"),
    ]


def _product(column: str) -> pl.Expr:
    """The number of elements of a shape such as 64x8x1."""
    sides = pl.col(column).str.split("x").list.eval(pl.element().cast(pl.Float64, strict=False))
    complete = sides.list.eval(pl.element().is_not_null()).list.all() & (sides.list.len() > 0)
    return pl.when(complete).then(sides.list.eval(pl.element().product()).list.first())
