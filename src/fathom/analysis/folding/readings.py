"""Samples of one group of counters on one device, as arrays."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.intervals import Array
from fathom.analysis.results import Abstained


class Readings(msgspec.Struct, frozen=True):
    """Samples sorted by burst and time, in ns; `values` is samples x counters, NaN if not sampled."""

    device: int
    names: list[str]
    burst: Array
    starts: Array
    ends: Array
    values: Array

    def only(self, rows: Array) -> Readings:
        """Return the samples that a mask or indices select."""
        return Readings(
            self.device, self.names, self.burst[rows], self.starts[rows], self.ends[rows], self.values[rows]
        )

    @property
    def interval_ns(self) -> float:
        """Median length of a sample in ns; 0 if there are no samples."""
        return float(np.median(self.ends - self.starts)) if len(self.starts) else 0.0


def readings_of(samples: pl.DataFrame, groups: Any) -> tuple[list[Readings], list[Abstained]]:
    """Return readings of each device and group from the table `samples`; `groups[group]` names its counters.

    Samples are left out and reported if they have no length, or other numbers of values than their group.
    """
    if not samples.height:
        return [], []
    named = _names(groups)
    readings, abstained = [], []
    for (device, group), rows in samples.group_by("device", "group", maintain_order=True):
        what = f"counters of group {group} on device {device}"
        if group not in named:
            abstained.append(Abstained(what, "the sounding does not say which counters they are"))
            continue
        valid = rows.filter(
            pl.col("end_ns") > pl.col("start_ns"), pl.col("values").list.len() == len(named[group])
        ).sort("burst", "start_ns")
        if valid.height < rows.height:
            lost = rows.height - valid.height
            abstained.append(Abstained(what, f"{lost} damaged samples were left out"))
        if valid.height:
            readings.append(_arrays(int(device or 0), named[group], valid))
    return readings, abstained


def _names(groups: Any) -> dict[Any, list[str]]:
    """Return the names of counters by group; {} if the recording is damaged."""
    if not isinstance(groups, list):
        return {}
    return {
        number: [str(name) for name in names]
        for number, names in enumerate(groups)
        if isinstance(names, list) and names
    }


def _arrays(device: int, names: list[str], rows: pl.DataFrame) -> Readings:
    values = rows["values"].explode().to_numpy().astype(np.float64).reshape(rows.height, len(names))
    values[~np.isfinite(values)] = np.nan
    burst = filled(rows["burst"], 0).to_numpy()
    return Readings(device, names, burst, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), values)
