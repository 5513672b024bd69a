"""A sounding made small: its samples become counters of kernel families, a thousandth of their size."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from fathom.sounding import Rank, Store

STATIC = "static"  # rows that are derived from the launches each time


def folded(store: Store, target: Path) -> Store:
    """`store` written anew at `target`, its samples folded and left out. Raises BadInputError.

    What was recorded for their sake, launches inside bursts, goes with them; everything else stays as it is.
    """
    import polars as pl

    from fathom.analysis.folding import counters_of, facts_of
    from fathom.sounding import TABLES, Writer

    writer = Writer(target)
    pools = {}
    try:
        for rank in store.ranks:
            for table in TABLES.keys() - {"samples", "counters"}:
                writer.write(rank, table, _needed(store.table(table, rank)).collect())
            found = counters_of(store, rank)
            writer.write(rank, "counters", found.frame.filter(pl.col("source") != STATIC))
            pools[rank] = facts_of(found.pools)
    except BaseException:
        writer.discard()
        raise
    manifest = copy(store.manifest)
    manifest.ranks = [_knowing(one, pools.get(one.rank)) for one in manifest.ranks]
    return writer.finish(manifest, store.machine)


def _knowing(rank: Rank, pools: list[dict[str, Any]] | None) -> Rank:
    """The rank, with the families that are told together among its facts."""
    rank = copy(rank)
    rank.facts = rank.facts | ({"pools": pools} if pools else {})
    return rank


def _needed(table: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    phased = "phase" in table.collect_schema().names()
    return table.filter(pl.col("phase").ne_missing("counters")) if phased else table
