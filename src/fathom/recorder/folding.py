"""Fold counter samples into counters per kernel family, in a new recording or in a copy without samples."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from fathom.sounding import Facts

if TYPE_CHECKING:
    import polars as pl

    from fathom.sounding import Rank, Store

STATIC = "static"  # table facts that any recording of launches has


def fold(store: Store, say: Callable[[str], None] | None = None) -> Store:
    """Fold the samples of `store`, just written and not yet read, into its table `counters`, and return it.

    Without samples, or if folding fails, the store stays as it is. `say` reports a failure, and readers of
    its counters get the reason too.
    """
    import polars as pl

    from fathom.analysis.folding import facts_from, fold_rank
    from fathom.sounding import amend

    sampled = [r for r in store.ranks if store.table("samples", r).select(pl.len()).collect().item()]
    try:
        folded_counters = {rank: fold_rank(store, rank) for rank in sampled}
    except Exception as error:  # the recording matters more than its counters
        if os.environ.get("FATHOM_DEBUG"):
            traceback.print_exception(error)
        if say:
            say(f"its hardware counters could not be folded: {str(error) or type(error).__name__}")
        return store
    if not folded_counters:
        return store
    ranks = _knowing(store, {rank: facts_from(counters) for rank, counters in folded_counters.items()})
    return amend(
        store, {(rank, "counters"): counters.frame for rank, counters in folded_counters.items()}, ranks
    )


def folded(store: Store, target: Path) -> Store:
    """Write a copy of `store` to `target` with folded counters and without samples. Raises BadInputError.

    Launches recorded in counter bursts are dropped too; everything else is copied.
    """
    from fathom.analysis.folding import counters_of, facts_from
    from fathom.sounding import TABLES, Writer

    writer = Writer(target)
    facts = {}
    try:
        for rank in store.ranks:
            for table in TABLES.keys() - {"samples", "counters"}:
                writer.write(rank, table, _needed(store.table(table, rank)).collect())
            counters = counters_of(store, rank)
            if (counters.frame["source"] != STATIC).any():
                writer.write(rank, "counters", counters.frame)
                facts[rank] = facts_from(counters)
    except BaseException:
        writer.discard()
        raise
    manifest = copy(store.manifest)
    manifest.ranks = _knowing(store, facts)
    return writer.finish(manifest, store.machine)


def _knowing(store: Store, facts: dict[int, Facts]) -> list[Rank]:
    """Return copies of the ranks, with `facts` of each rank added to its own."""
    ranks = []
    for known in store.manifest.ranks:
        rank = copy(known)
        rank.facts = rank.facts | facts.get(rank.rank, {})
        ranks.append(rank)
    return ranks


def _needed(table: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    phased = "phase" in table.collect_schema().names()
    return table.filter(pl.col("phase").ne_missing("counters")) if phased else table
