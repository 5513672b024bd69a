"""Counters of each kernel family of one rank: read from the sounding, or folded from its samples."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from fathom import cache
from fathom.analysis.folding.readings import readings_of
from fathom.analysis.folding.results import Folding, folding_from, packed, pools_from, unpacked
from fathom.analysis.folding.rows import SAMPLED, STATIC, static_attributes
from fathom.analysis.results import Abstained
from fathom.sounding import COUNTERS, Facts, Store, conform

PHASE = "counters"
_KERNELS = [
    "device", "kind", "family", "direction", "start_ns", "end_ns", "burst", "phase",
    "grid", "block", "registers", "shared_bytes", "local_bytes",
]  # fmt: skip


def counters_of(store: Store, rank: int) -> Folding:
    """Return counters by kernel family: COUNTERS rows from samples ("PM sampling") and launches ("static").

    They are stored when a recording is finished. Samples that an earlier Fathom recorded are folded on the
    first read, and the result is kept in the user's cache.

    A family's value is the device's, averaged over the time in which the family ran alone. Families that
    never do are reported as a group "A + B", and launch shapes of one function that are each too rare as a
    pool, "F, 41 launch shapes". `samples` is the number of samples in which it ran, `error` the standard
    error, in the unit of the value. Rows that the sounding already has, for example from an import, are added
    unchanged. For a counter in several groups, the group with the smallest error counts.
    """
    folding = folding_from(store.table("counters", rank).select(*COUNTERS).collect(), _facts(store, rank))
    if folding is not None:
        return folding
    key = _key(store, rank) if store.table("samples", rank).select(pl.len()).collect().item() else None
    folding = unpacked(data) if key and (data := cache.read(key)) else None
    if folding is None:
        folding = fold_rank(store, rank)
        if key:
            cache.write(key, packed(folding))
    return folding


def _key(store: Store, rank: int) -> str | None:
    """Return the key of a folding in the cache; None without checksums, which identify the samples."""
    if not store.manifest.checksums:
        return None
    return cache.key("counters", msgspec.json.encode(store.manifest), rank)


def fold_rank(store: Store, rank: int) -> Folding:
    """Fold the samples of a rank, even if the sounding stores the result."""
    kernels = store.table("kernels", rank).select(_KERNELS).drop_nulls(["start_ns", "end_ns"]).collect()
    samples = store.table("samples", rank).filter(phase=PHASE).collect()
    facts = _facts(store, rank)
    recorded = store.table("counters", rank).select(*COUNTERS).collect()
    if len(samples):
        recorded = recorded.filter(~pl.col("source").is_in([SAMPLED, STATIC]))
    sampled = kernels.filter(phase=PHASE)
    folded = fold_samples(samples, sampled, facts.get("counter_groups"), _unsure(facts.get("sampling")))
    known = STATIC in recorded["source"]
    static = conform("counters", pl.DataFrame()) if known else static_attributes(kernels)
    abstained = [] if samples.is_empty() and len(recorded) else folded.abstained
    pools = [] if len(samples) else pools_from(facts)
    return Folding(
        pl.concat([recorded, folded.frame, static]), abstained, folded.alignment, [*pools, *folded.pools]
    )


def counters_table(store: Store) -> pl.DataFrame:
    """Return the table `counters` of all ranks, with `rank` as the last column; fold samples if necessary."""
    frames = [
        counters_of(store, rank).frame.with_columns(rank=pl.lit(rank, pl.Int32)) for rank in store.ranks
    ]
    return pl.concat(frames) if frames else store.table("counters").collect()


def _facts(store: Store, rank: int) -> Facts:
    about = next((entry for entry in store.manifest.ranks if entry.rank == rank), None)
    return about.facts if about else {}


def _unsure(sampling: Any) -> dict[int, int]:
    """For each burst, return the nanoseconds by which sampling may have started before its timestamps."""
    facts = [fact for fact in sampling if isinstance(fact, dict)] if isinstance(sampling, list) else []
    bursts = [(fact.get("burst"), fact.get("clock_error_ns")) for fact in facts]
    return {burst: ns for burst, ns in bursts if isinstance(burst, int) and isinstance(ns, int)}


def fold_samples(
    samples: pl.DataFrame, kernels: pl.DataFrame, groups: object, unsure: dict[int, int] | None = None
) -> Folding:
    """Fold the tables `samples` and `kernels`; `groups[number]` names the counters of each group.

    `unsure` maps each burst to the nanoseconds by which samples may have started before their timestamps.
    """
    readings, abstained = readings_of(samples, groups)
    if not readings:
        why = "no counters were sampled; record with `fathom run --depth counters`"
        return Folding(conform("counters", pl.DataFrame()), [*abstained, Abstained("counters", why)], [])
    # Imported here, because most readers find the counters folded.
    from fathom.analysis.folding.device import fold_device
    from fathom.analysis.folding.solver import one_thread

    devices = []
    with one_thread():
        for device in sorted({group.device for group in readings}):
            own = kernels.filter(pl.col("device") == device)
            mine = [group for group in readings if group.device == device]
            devices.append(fold_device(mine, own, unsure or {}))
    return Folding(
        pl.concat([folded.frame for folded in devices]),
        abstained + [reason for folded in devices for reason in folded.abstained],
        [aligned for folded in devices for aligned in folded.alignment],
        [pool for folded in devices for pool in folded.pools],
    )
