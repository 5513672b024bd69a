"""An excerpt of samples and kernels around one launch, for a plot."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fathom.analysis.device import detail
from fathom.analysis.folding.align import moved
from fathom.analysis.folding.kinds import base, kind_of
from fathom.analysis.folding.readings import Readings, readings_of
from fathom.analysis.folding.results import Alignment, Folding
from fathom.analysis.intervals import Array
from fathom.sounding import Store

_AROUND = 2.0  # multiple of the launch's length, before and after it
_LEAST_NS = 100_000


class Excerpt(NamedTuple):
    """Kernels and samples of a stretch of time, in ns since its start, both on the kernels' clock.

    `kernels` has label, stream, start and end. `values` holds counters in per cent by their names without
    prefix, one value per sample.
    """

    length_ns: int
    kernels: pl.DataFrame
    starts: Array
    ends: Array
    values: dict[str, Array]


def excerpt_around(store: Store, rank: int, device: str, family: str, folding: Folding) -> Excerpt | None:
    """Return the stretch around the family's median launch in the aligned bursts; None if none was sampled.

    `device` is a label such as `cuda:0`.
    """
    index = int(device.rpartition(":")[2]) if device[-1:].isdigit() else -1
    kernels = store.table("kernels", rank).filter(phase="counters", device=index).collect()
    samples = store.table("samples", rank).filter(phase="counters", device=index).collect()
    about = next((r for r in store.manifest.ranks if r.rank == rank), None)
    readings, _ = readings_of(samples, about.facts.get("counter_groups") if about else None)
    aligned = {burst.burst: burst for burst in folding.alignment if burst.device == index and not burst.why}
    labelled = kernels.with_columns(label=detail(), time=pl.col("end_ns") - pl.col("start_ns"))
    own = labelled.filter(pl.col("label") == family, pl.col("burst").is_in(list(aligned)))
    if not readings or own.is_empty():
        return None
    launch = own.sort("time", "start_ns").row(own.height // 2, named=True)
    reading = next((r for r in readings if (r.burst == launch["burst"]).any()), None)
    return None if reading is None else _cut(labelled, reading, launch, aligned[launch["burst"]])


def _cut(kernels: pl.DataFrame, readings: Readings, launch: dict[str, Any], alignment: Alignment) -> Excerpt:
    around = max(int(_AROUND * launch["time"]), _LEAST_NS)
    begin, end = launch["start_ns"] - around, launch["end_ns"] + around
    own = readings.only(readings.burst == launch["burst"])
    starts, ends = moved(own, alignment)
    inside = (ends > begin) & (starts < end)
    near = kernels.filter(
        pl.col("burst") == launch["burst"], pl.col("end_ns") > begin, pl.col("start_ns") < end
    ).select(
        "label",
        "stream",
        start=(pl.col("start_ns") - begin).clip(0),
        end=(pl.col("end_ns") - begin).clip(0, end - begin),
    )
    values = {
        base(name): own.values[inside, place]
        for place, name in enumerate(own.names)
        if (kind := kind_of(name)) is not None and kind.unit == "%"
    }
    starts, ends = (np.clip(times[inside] - begin, 0, end - begin) for times in (starts, ends))
    return Excerpt(end - begin, near, starts, ends, values)
