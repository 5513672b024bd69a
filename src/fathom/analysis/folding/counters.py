"""Counters of every kernel family of one rank: aligned, folded, and put into the table's rows."""

from __future__ import annotations

from typing import Any

import polars as pl

from fathom.analysis.folding.blas import one_thread
from fathom.analysis.folding.device import fold_device
from fathom.analysis.folding.pools import recorded as pools_recorded
from fathom.analysis.folding.readings import readings_of
from fathom.analysis.folding.results import Folding
from fathom.analysis.folding.static import static_attributes
from fathom.analysis.results import Abstained
from fathom.sounding import Store
from fathom.sounding.schema import COUNTERS, conform

PHASE = "counters"
_KERNELS = [
    "device", "kind", "family", "direction", "start_ns", "end_ns", "burst", "phase",
    "grid", "block", "registers", "shared_bytes", "local_bytes",
]  # fmt: skip


def counters_of(store: Store, rank: int) -> Folding:
    """Counters by kernel family: rows of COUNTERS, from samples ("PM sampling") and launches ("static").

    A family's value is the device's, averaged over the time in which the family ran alone; families that
    never do are told as "A + B", and launch shapes of one function that are each too rare as one family,
    "F, 41 launch shapes": a pool. `samples` is the number of samples in which it ran, `error` the standard
    error, in the unit of the value. What was recorded with the sounding (an import, say) is added as it is.
    Counters of more than one group are told by the one with the smallest error.
    """
    kernels = store.table("kernels", rank).select(_KERNELS).drop_nulls(["start_ns", "end_ns"]).collect()
    samples = store.table("samples", rank).filter(phase=PHASE).collect()
    about = next((r for r in store.manifest.ranks if r.rank == rank), None)
    facts = about.facts if about else {}
    recorded = store.table("counters", rank).select(*COUNTERS).collect()
    sampled = kernels.filter(phase=PHASE)
    found = fold_samples(samples, sampled, facts.get("counter_groups"), _unsure(facts.get("sampling")))
    static = static_attributes(kernels)
    abstained = [] if samples.is_empty() and len(recorded) else found.abstained
    pools = [*pools_recorded(facts.get("pools")), *found.pools]
    return Folding(pl.concat([recorded, found.frame, static]), abstained, found.alignment, pools)


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
