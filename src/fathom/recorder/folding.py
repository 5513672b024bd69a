"""A sounding made small: its samples become counters of kernel families, a thousandth of their size."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from fathom.sounding import Store

STATIC = "static"  # rows that are derived from the launches each time


def folded(store: Store, target: Path) -> Store:
    """`store` written anew at `target`, its samples folded and left out. Raises BadInputError.

    What was recorded for their sake, launches inside bursts, goes with them; everything else stays as it is.
    """
    import polars as pl

    from fathom.analysis.folding import counters_of
    from fathom.sounding import TABLES, Writer

    writer = Writer(target)
    try:
        for rank in store.ranks:
            for table in TABLES.keys() - {"samples", "counters"}:
                writer.write(rank, table, _needed(store.table(table, rank)).collect())
            counters = counters_of(store, rank).frame
            writer.write(rank, "counters", counters.filter(pl.col("source") != STATIC))
    except BaseException:
        writer.discard()
        raise
    return writer.finish(copy(store.manifest), store.machine)


def _needed(table: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    phased = "phase" in table.collect_schema().names()
    return table.filter(pl.col("phase").ne_missing("counters")) if phased else table
