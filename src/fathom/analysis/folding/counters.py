"""Counters of every kernel family of one rank: aligned, folded, and put into the table's rows."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from fathom import cache
from fathom.analysis.folding.blas import one_thread
from fathom.analysis.folding.device import SOURCE, fold_device
from fathom.analysis.folding.pools import recorded as pools_recorded
from fathom.analysis.folding.readings import readings_of
from fathom.analysis.folding.results import Folding
from fathom.analysis.folding.static import SOURCE as STATIC
from fathom.analysis.folding.static import static_attributes
from fathom.analysis.folding.stored import POOLS, folding_from, packed, unpacked
from fathom.analysis.results import Abstained
from fathom.sounding import COUNTERS, Store, conform

PHASE = "counters"
_KERNELS = [
    "device", "kind", "family", "direction", "start_ns", "end_ns", "burst", "phase",
    "grid", "block", "registers", "shared_bytes", "local_bytes",
]  # fmt: skip


def counters_of(store: Store, rank: int) -> Folding:
    """Counters by kernel family: rows of COUNTERS, from samples ("PM sampling") and launches ("static").

    A recording holds them from when it was finished. Samples of one that does not, made by an earlier Fathom,
    are folded on the first read and kept in the user's cache.

    A family's value is the device's, averaged over the time in which the family ran alone; families that
    never do are told as "A + B", and launch shapes of one function that are each too rare as one family,
    "F, 41 launch shapes": a pool. `samples` is the number of samples in which it ran, `error` the standard
    error, in the unit of the value. What was recorded with the sounding (an import, say) is added as it is.
    Counters of more than one group are told by the one with the smallest error.
    """
    found = folding_from(store.table("counters", rank).select(*COUNTERS).collect(), _facts(store, rank))
    if found is not None:
        return found
    key = _key(store, rank) if store.table("samples", rank).select(pl.len()).collect().item() else None
    found = unpacked(data) if key and (data := cache.read(key)) else None
    if found is None:
        found = fold_rank(store, rank)
        if key:
            cache.write(key, packed(found))
    return found


def _key(store: Store, rank: int) -> str | None:
    """What a folding is kept under; None where no checksums tell whether the samples are the same."""
    if not store.manifest.checksums:
        return None
    return cache.key("counters", msgspec.json.encode(store.manifest), rank)


def fold_rank(store: Store, rank: int) -> Folding:
    """The same, folded now, whatever the sounding holds of it."""
    kernels = store.table("kernels", rank).select(_KERNELS).drop_nulls(["start_ns", "end_ns"]).collect()
    samples = store.table("samples", rank).filter(phase=PHASE).collect()
    facts = _facts(store, rank)
    recorded = store.table("counters", rank).select(*COUNTERS).collect()
    if len(samples):
        recorded = recorded.filter(~pl.col("source").is_in([SOURCE, STATIC]))
    sampled = kernels.filter(phase=PHASE)
    found = fold_samples(samples, sampled, facts.get("counter_groups"), _unsure(facts.get("sampling")))
    known = STATIC in recorded["source"]
    static = conform("counters", pl.DataFrame()) if known else static_attributes(kernels)
    abstained = [] if samples.is_empty() and len(recorded) else found.abstained
    pools = [] if len(samples) else pools_recorded(facts.get(POOLS))
    return Folding(
        pl.concat([recorded, found.frame, static]), abstained, found.alignment, [*pools, *found.pools]
    )


def counters_table(store: Store) -> pl.DataFrame:
    """The table `counters` of all ranks, with a `rank` column last; folded where it was not yet."""
    frames = [
        counters_of(store, rank).frame.with_columns(rank=pl.lit(rank, pl.Int32)) for rank in store.ranks
    ]
    return pl.concat(frames) if frames else store.table("counters").collect()


def _facts(store: Store, rank: int) -> dict[str, Any]:
    about = next((one for one in store.manifest.ranks if one.rank == rank), None)
    return about.facts if about else {}


def _unsure(sampling: Any) -> dict[int, int]:
    """By burst, how much earlier than its times say it may have been sampled, in ns."""
    found = [fact for fact in sampling if isinstance(fact, dict)] if isinstance(sampling, list) else []
    told = [(fact.get("burst"), fact.get("clock_error_ns")) for fact in found]
    return {burst: ns for burst, ns in told if isinstance(burst, int) and isinstance(ns, int)}


def fold_samples(
    samples: pl.DataFrame, kernels: pl.DataFrame, groups: object, unsure: dict[int, int] | None = None
) -> Folding:
    """The same, of tables: `groups` are the names of the counters of each group of `samples`.

    `unsure`, by burst: how many ns before its times say its samples may have begun.
    """
    readings, abstained = readings_of(samples, groups)
    if not readings:
        why = "no counters were sampled; record with `fathom run --depth counters`"
        return Folding(conform("counters", pl.DataFrame()), [*abstained, Abstained("counters", why)], [])
    found = []
    with one_thread():
        for device in sorted({one.device for one in readings}):
            own = kernels.filter(pl.col("device") == device)
            mine = [one for one in readings if one.device == device]
            found.append(fold_device(mine, own, unsure or {}))
    return Folding(
        pl.concat([one.frame for one in found]),
        abstained + [reason for one in found for reason in one.abstained],
        [aligned for one in found for aligned in one.alignment],
        [pool for one in found for pool in one.pools],
    )
