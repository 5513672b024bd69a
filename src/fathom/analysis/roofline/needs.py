"""The least time that pieces of work need, and the resource that sets it."""

from __future__ import annotations

import polars as pl

from fathom.machine import Limits
from fathom.units import NS_PER_S

NEED = {"need_ns": pl.Float64, "bound": pl.String, "unbounded": pl.String, "unit": pl.String}
# fp32 products that tensor cores ran in TF32, by the kernel's name: cuBLAS (nvjet: A, B and C in s), CUTLASS
TF32 = r"tf32|s1688gemm|tensorop_s\d+|nvjet_(?:sm\d+_)?s[a-z]{2}_"


def needs(work: pl.DataFrame, limits: Limits | None) -> pl.DataFrame:
    """The columns of NEED: nanoseconds, the resource that sets them, why they are not known, arithmetic unit.

    `work` has kind, name, direction, flops, bytes, work_dtype, footprint (bytes of the whole op) and product
    (whether matrix units do it). The need is the largest, over resources, of work / ceiling. Of a fused
    kernel whose FLOPs nobody counted only the traffic is bounded. Without `limits` only the unit is known.
    """
    limits = limits or Limits()
    columns = work.with_columns(unit=_unit(), **_path(limits))
    columns = columns.with_columns(
        arithmetic=pl.col("flops") / _rate("unit", limits.arithmetic) * NS_PER_S,
        traffic=pl.col("bytes") / pl.col("bandwidth") * NS_PER_S,
    )
    columns = columns.with_columns(
        arithmetic=pl.when("product").then("arithmetic").otherwise(_or_nothing("arithmetic")),
        traffic=pl.when(_uncounted()).then(_or_nothing("traffic")).otherwise("traffic"),
    )
    known = pl.col("arithmetic").is_not_null() & pl.col("traffic").is_not_null()
    computes = pl.col("arithmetic") > pl.col("traffic")
    return columns.select(
        pl.when(known).then(pl.max_horizontal("arithmetic", "traffic")).alias("need_ns"),
        pl.when(known).then(pl.when(computes).then("unit").otherwise("path")).alias("bound"),
        pl.when(~known).then(_why()).cast(pl.String).alias("unbounded"),
        "unit",
    )


def _unit() -> pl.Expr:
    """The ceiling of the arithmetic: matrix units for products, perhaps in TF32; else vectors."""
    tf32 = (pl.col("work_dtype") == "fp32") & pl.col("name").str.contains(TF32)
    matrix = pl.when(tf32).then(pl.lit("tf32")).otherwise("work_dtype")
    vector = pl.when(pl.col("work_dtype") == "fp64").then(pl.lit("fp64")).otherwise(pl.lit("fp32"))
    return pl.when("product").then(pl.lit("matmul.") + matrix).otherwise(pl.lit("vector.") + vector)


def _or_nothing(column: str) -> pl.Expr:
    return pl.col(column).fill_null(0.0)


def _uncounted() -> pl.Expr:
    """Products from a cache that was never measured: their arithmetic bounds them all the same."""
    return pl.col("product") & pl.col("bytes").is_not_null()


def _path(limits: Limits) -> dict[str, pl.Expr]:
    """What the bytes go through, and its bandwidth."""
    direction = pl.lit("copy ") + pl.col("direction")
    cached = pl.col("footprint") <= limits.cache_bytes
    copied, written = pl.col("kind") == "copy", pl.col("kind") == "set"
    linked = pl.col("kind") == "collective"
    memory = pl.when(written).then(pl.lit(limits.writes)).otherwise(pl.lit(limits.memory))
    kept = pl.when(cached).then(pl.lit(limits.cache)).otherwise(memory)
    name = pl.when(cached).then(pl.lit(limits.cache_name)).otherwise(pl.lit(limits.memory_name))
    return {
        "path": pl.when(copied).then(direction).when(linked).then(pl.lit("link")).otherwise(name),
        "bandwidth": pl.when(copied)
        .then(_rate("direction", limits.copies))
        .when(linked)
        .then(pl.lit(limits.link, pl.Float64))
        .otherwise(kept),
    }


def _rate(column: str, rates: dict[str, float]) -> pl.Expr:
    return pl.col(column).replace_strict(rates, default=None, return_dtype=pl.Float64)


def _why() -> pl.Expr:
    unknown = pl.col("bytes").is_null() | (pl.col("product") & pl.col("flops").is_null())
    missing = pl.when(pl.col("traffic").is_null()).then("path").otherwise("unit").fill_null("it")
    return (
        pl.when(unknown)
        .then(pl.coalesce("abstained", pl.lit("its work is not known")))
        .otherwise(pl.lit("no ceiling was measured for ") + missing)
    )
