"""The launches of each step, in order, as comparable numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

_WAITS = r"^(cuda|hip|cu)(Device|Stream|Ctx)Synchronize"
_KEY = ["phase", "burst", "correlation"]


@dataclass
class Occurrence:
    """One step. Arrays over its pieces: calls that launched device work or waited for it, in order.

    `codes`: equal numbers for equal work with equal launch shape, in all steps; `names`: for kernels of equal
    name; `rows`: of the table of launches.
    """

    phase: str
    burst: int
    kind: str | None
    start: int
    end: int
    codes: np.ndarray
    names: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def occurrences(tables: dict[str, pl.DataFrame], steps: pl.DataFrame) -> list[Occurrence]:
    """The steps (phase, burst, kind, mark_ns, end_ns) with their launches."""
    pieces = _pieces(tables["launches"], tables["kernels"], steps)
    by_burst = dict(iter(pieces.group_by("phase", "burst")))
    result = []
    for step in steps.select("phase", "burst", "kind", "mark_ns", "end_ns").iter_rows(named=True):
        rows = by_burst.get((step["phase"], step["burst"]), pieces.clear())
        rows = rows.filter(pl.col("start_ns") >= step["mark_ns"], pl.col("start_ns") < step["end_ns"])
        columns = (rows[name].to_numpy() for name in ("code", "named", "row", "start_ns", "end_ns"))
        bounds = step["mark_ns"], step["end_ns"]
        result.append(Occurrence(step["phase"], step["burst"], step["kind"], *bounds, *columns))
    return result


def _pieces(launches: pl.DataFrame, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """phase, burst, row, start_ns, end_ns, code and named (code of the name) of the calls, in order."""
    bursts = steps.select("phase", "burst").unique()
    calls = launches.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    calls = calls.drop_nulls("correlation").join(bursts, on=["phase", "burst"], how="semi")
    work = kernels.join(bursts, on=["phase", "burst"], how="semi").sort("start_ns")
    work = work.with_columns(
        code=pl.struct("kind", "name", "grid", "block").hash(), named=pl.col("name").hash()
    )
    what = work.group_by(_KEY).agg(_all_of_it("code"), _all_of_it("named"))
    waits = pl.col("code").is_null() & pl.col("api").str.contains(_WAITS)
    joined = calls.join(what, on=_KEY, how="left").with_columns(
        pl.when(waits).then(pl.lit(0, pl.UInt64)).otherwise(name).alias(name) for name in ("code", "named")
    )
    return joined.drop_nulls("code").sort("phase", "burst", "correlation", "start_ns")


def _all_of_it(code: str) -> pl.Expr:
    """One number for all work of a call, because the launch of a graph starts many kernels."""
    codes = pl.col(code)
    return pl.struct(codes.first(), codes.sum().alias("sum"), pl.len()).hash().alias(code)
