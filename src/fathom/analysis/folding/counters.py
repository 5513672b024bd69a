"""Counters of every kernel family of one rank: aligned, folded, and put into the table's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from fathom.analysis.folding.align import align
from fathom.analysis.folding.families import Told, tell
from fathom.analysis.folding.fold import Folded, fold
from fathom.analysis.folding.kinds import bare, kind_of
from fathom.analysis.folding.launches import launches_of
from fathom.analysis.folding.parts import parts_of
from fathom.analysis.folding.readings import Readings, readings_of
from fathom.analysis.folding.results import Alignment, Folding
from fathom.analysis.folding.states import Members
from fathom.analysis.folding.static import static_attributes
from fathom.analysis.folding.together import together
from fathom.analysis.results import Abstained
from fathom.sounding import Store
from fathom.sounding.schema import COUNTERS, conform

PHASE = "counters"
SOURCE = "PM sampling"
_KERNELS = [
    "device", "kind", "family", "direction", "start_ns", "end_ns", "burst", "phase",
    "grid", "block", "registers", "shared_bytes", "local_bytes",
]  # fmt: skip


def counters_of(store: Store, rank: int) -> Folding:
    """Counters by kernel family: rows of COUNTERS, from samples ("PM sampling") and launches ("static").

    A family's value is the device's, averaged over the time in which the family ran alone; families that
    never do are told as "A + B". `samples` is the number of samples in which it ran, `error` the standard
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
    return Folding(pl.concat([recorded, found.frame, static]), abstained, found.alignment)


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
    frames: list[pl.DataFrame] = []
    alignments: list[Alignment] = []
    for device in sorted({one.device for one in readings}):
        own = kernels.filter(pl.col("device") == device)
        mine = [one for one in readings if one.device == device]
        frame, reasons, aligned = _device(mine, own, unsure or {})
        frames.append(frame)
        abstained += reasons
        alignments += aligned
    return Folding(pl.concat(frames), abstained, alignments)


def _device(
    readings: list[Readings], kernels: pl.DataFrame, unsure: dict[int, int]
) -> tuple[pl.DataFrame, list[Abstained], list[Alignment]]:
    launches = launches_of(kernels)
    members: list[Members] = [()]
    frames: list[pl.DataFrame] = []
    abstained: list[Abstained] = []
    aligned: list[Alignment] = []
    silent: dict[str, str] = {}
    for one in readings:
        whole = {b: launches.states(b, members) for b in np.unique(one.burst).tolist()}
        alignments = {
            b: align(one.only(one.burst == b), b, states, unsure.get(b, 0)) for b, states in whole.items()
        }
        parts = parts_of(whole)
        alignments = together(one, parts, alignments)
        aligned += alignments.values()
        abstained += _unaligned(one, alignments)
        folded = fold(one, parts, alignments, len(members))
        if folded is None:
            continue
        times = np.sum([states.times for states in whole.values()], axis=0)
        told, untold = tell(folded, members, times, launches.labels)
        frames.append(_rows(one, folded, told))
        silent = dict(untold) | silent
        abstained += _unaveraged(folded)
    best = _best(frames)
    known = set(best["family"])
    device = readings[0].device
    abstained += [
        Abstained(f"counters of {family} on device {device}", why)
        for family, why in silent.items()
        if family not in known
    ]
    return best, abstained, aligned


def _unaligned(readings: Readings, alignments: dict[int, Alignment]) -> list[Abstained]:
    what = f"counters of device {readings.device} in burst "
    return [Abstained(f"{what}{one.burst}", one.why) for one in alignments.values() if one.why]


def _unaveraged(folded: Folded) -> list[Abstained]:
    return [
        Abstained(f"counter {name}", "its name does not say how to average it") for name in folded.unknown
    ]


def _rows(readings: Readings, folded: Folded, told: list[Told]) -> pl.DataFrame:
    """The table's rows; counters that were not sampled while a family ran have none."""
    columns = [one.column for one in told]
    values, errors = folded.values[columns], folded.errors[columns]
    width = len(readings.names)
    units = [kind.unit if (kind := kind_of(name)) else "" for name in readings.names]
    frame = pl.DataFrame(
        {
            "device": readings.device,
            "family": [one.name for one in told for _ in range(width)],
            "counter": [bare(name) for name in readings.names] * len(told),
            "value": values.ravel(),
            "unit": units * len(told),
            "samples": np.repeat(folded.samples[columns], width),
            "error": errors.ravel(),
            "source": SOURCE,
        }
    )
    return conform("counters", frame.filter(pl.col("value").is_finite(), pl.col("error").is_finite()))


def _best(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Of counters that several groups hold, the rows with the smallest error."""
    if not frames:
        return conform("counters", pl.DataFrame())
    keys = ["device", "family", "counter"]
    return pl.concat(frames).sort(*keys, "error").unique(keys, keep="first", maintain_order=True)
