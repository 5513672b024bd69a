"""Device work by category, and by op and input shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.causes import OPTIMIZER_REGION
from fathom.analysis.columns import filled
from fathom.analysis.communication import CALLS
from fathom.analysis.entries import COLLECTIVES, DEVICE_WORK, WORK, Entry
from fathom.analysis.intervals import Array
from fathom.analysis.results import Category, LedgerRow, OpShape
from fathom.analysis.work.classes import class_of
from fathom.analysis.work.tree import NONE
from fathom.units import NS_PER_MS, NS_PER_S, NS_PER_US

MOST = 100  # rows of shapes
MOSTLY = 0.5  # of a call inside the used windows: others are cut by their bounds
COMMUNICATION, COPY, OTHER = "communication", "copy", "other"
# Names of categories for classes of work; other classes keep their names.
NAMES = {"normalisation": "norm", "copy and cast": COPY}


class Views(msgspec.Struct):
    """Categories of each row of the ledger, as shares of its time, and calls by shapes."""

    shares: dict[tuple[str, str], dict[str, float]]
    shapes: list[OpShape]


def category_of(name: str) -> str:
    """Return the category of an op or a kernel by its name."""
    if re.match(CALLS, name):  # `allreduce` is no reduction, and `allgather` no indexing
        return COMMUNICATION
    known = class_of(name).name
    return NAMES.get(known, known) or OTHER


def views_of(works: pl.DataFrame, ops: pl.DataFrame, parent: Array, steps: int) -> Views:
    """Return the views of `works` (`works_in_windows`), whose kernels refer to rows of `ops`."""
    works = works.with_columns(
        category=_categories(works, ops, parent), span=pl.col("time") * pl.col("inside")
    )
    sums = works.group_by("entry", "family", "category", maintain_order=True).agg(pl.col("span").sum())
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for entry, family, category, span in sums.iter_rows():
        shares.setdefault((entry, family or ""), {})[category] = span
    return Views(shares, list(_shapes(works, ops, max(steps, 1))))


def _categories(works: pl.DataFrame, ops: pl.DataFrame, parent: Array) -> pl.Series:
    """Return the category of each kernel: by its kind, by the region of the optimizer, by op, by name."""
    names = filled(ops["name"], "")
    owner, op = works["owner"].to_numpy(), works["op"].to_numpy()
    regions = names.str.starts_with(OPTIMIZER_REGION).to_numpy()
    optimizing = np.append(_below(regions, parent), False)  # NONE is last
    owners = names.gather(np.maximum(owner, 0)) if len(names) else pl.Series([""] * len(owner))
    frame = works.select("entry", "family").with_columns(
        optimizing=pl.Series(optimizing[op]),
        by=pl.Series(owners).set(pl.Series(owner == NONE), ""),
    )
    keys = frame.unique(maintain_order=True)
    each = [_category(*row) for row in keys.iter_rows()]
    joined = frame.join(
        keys.with_columns(category=pl.Series(each, dtype=pl.String)),
        on=keys.columns, how="left", nulls_equal=True, maintain_order="left",
    )  # fmt: skip
    return joined["category"]


def _category(entry: str, family: str | None, optimizing: bool, by: str) -> str:
    if entry in COLLECTIVES:
        return COMMUNICATION
    if entry == Entry.COPY:
        return COPY
    if optimizing:
        return "optimizer"
    named = category_of(by) if by else OTHER
    return category_of(family or "") if named == OTHER else named


def _below(marked: Array, parent: Array) -> Array:
    """Return a mask of the ops that are marked, or that a marked op called."""
    result = marked.copy()
    for _ in range(len(parent)):
        inherited = result | np.append(result, False)[parent]  # NONE is the last
        if (inherited == result).all():
            break
        result = inherited
    return result


def _shapes(works: pl.DataFrame, ops: pl.DataFrame, steps: int) -> Iterator[OpShape]:
    calls = works.filter(pl.col("owner") != NONE, pl.col("entry").is_in(list(DEVICE_WORK)))
    each = calls.group_by("owner", "instance", maintain_order=True).agg(
        pl.col("span").sum(),
        pl.col("time").sum(),
        flops=pl.when(pl.col("flops").null_count() == 0).then((pl.col("flops") / pl.col("inside")).sum()),
        bytes=pl.when(pl.col("bytes").null_count() == 0).then((pl.col("bytes") / pl.col("inside")).sum()),
        category=pl.col("category").sort_by("span").last(),
    )
    about = ops.select(op="name", shapes="shapes", dtypes="dtypes")[each["owner"].to_numpy()]
    each = pl.concat([each, about], how="horizontal").drop_nulls("shapes")
    each = each.filter(pl.col("span") >= MOSTLY * pl.col("time"))
    rates = [(pl.col(name) * NS_PER_S / pl.col("time")).alias(f"{name}_rate") for name in ("flops", "bytes")]
    rows = (
        each.with_columns(rates)
        .group_by("op", "shapes", "dtypes", maintain_order=True)
        .agg(
            pl.col("category").first(),
            pl.len().alias("count"),
            pl.col("span").sum(),
            *(pl.col("time").quantile(q).alias(f"time_{q}") for q in (0.0, 0.5, 1.0)),
            *(pl.col(f"{name}_rate") for name in ("flops", "bytes")),
        )
    )
    for row in rows.sort("span", descending=True).head(MOST).iter_rows(named=True):
        yield _shape(row, steps)


def _shape(row: dict[str, Any], steps: int) -> OpShape:
    least, median, most = (float(row[f"time_{q}"]) / NS_PER_US for q in (0.0, 0.5, 1.0))
    return OpShape(
        op=str(row["op"]),
        shapes=str(row["shapes"]),
        dtypes=str(row["dtypes"] or ""),
        category=str(row["category"]),
        count=int(row["count"]) / steps,
        ms=float(row["span"]) / steps / NS_PER_MS,
        min_us=least,
        median_us=median,
        max_us=most,
        flops_per_s=_spread(row["flops_rate"]),
        bytes_per_s=_spread(row["bytes_rate"]),
    )


def _spread(rates: list[float | None]) -> list[float] | None:
    """Return the smallest, the median and the largest rate; None if one is unknown, or if all are 0."""
    known = sorted(rate for rate in rates if rate is not None)
    if len(known) < len(rates) or not any(known):
        return None
    below, above = known[(len(known) - 1) // 2], known[len(known) // 2]
    return [known[0], above - (above - below) / 2, known[-1]]


def categories_of(ledger: list[LedgerRow], views: Views | None) -> list[Category]:
    """Return the categories of a ledger's work; `views` divide each row's time, or else its name does."""
    sums: dict[str, Category] = {}
    for row in ledger:
        if row.entry not in (*WORK, *COLLECTIVES, Entry.COPY) or row.ms <= 0:
            continue
        shares = (views.shares if views else {}).get((row.entry, row.detail)) or _by_name(row)
        total = sum(shares.values()) or 1.0
        for name, share in shares.items():
            _add(sums.setdefault(name, Category(name, 0.0, 0.0, 0.0)), row, share / total)
    return sorted(sums.values(), key=lambda category: -category.ms)


def _by_name(row: LedgerRow) -> dict[str, float]:
    return {_category(row.entry, row.detail, False, row.detail): 1.0}


def _add(to: Category, row: LedgerRow, share: float) -> None:
    to.ms += share * row.ms
    to.count = None if to.count is None or row.count is None else to.count + share * row.count
    to.flops = None if to.flops is None or row.flops is None else to.flops + share * row.flops
