"""Samples as arrays: one group of counters on one device."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.analysis.results import Abstained


class Readings(msgspec.Struct, frozen=True):
    """Samples in the order of burst and time; `values` is samples x counters, NaN where not sampled."""

    device: int
    names: list[str]
    burst: Array
    starts: Array
    ends: Array
    values: Array

    def only(self, rows: Array) -> Readings:
        """The samples that the mask or the indices select."""
        return Readings(
            self.device, self.names, self.burst[rows], self.starts[rows], self.ends[rows], self.values[rows]
        )

    @property
    def interval_ns(self) -> float:
        """The usual length of a sample."""
        return float(np.median(self.ends - self.starts)) if len(self.starts) else 0.0


def readings_of(samples: pl.DataFrame, groups: Any) -> tuple[list[Readings], list[Abstained]]:
    """The rows of `samples` by device and group, whose names are `groups[group]`.

    Samples without a length, and those that do not fit their group, are left out, and said.
    """
    if not samples.height:
        return [], []
    named = _names(groups)
    found, abstained = [], []
    for (device, group), rows in samples.group_by("device", "group", maintain_order=True):
        what = f"counters of group {group} on device {device}"
        if group not in named:
            abstained.append(Abstained(what, "the sounding does not say which counters they are"))
            continue
        sound = rows.filter(
            pl.col("end_ns") > pl.col("start_ns"), pl.col("values").list.len() == len(named[group])
        ).sort("burst", "start_ns")
        if sound.height < rows.height:
            lost = rows.height - sound.height
            abstained.append(Abstained(what, f"{lost} damaged samples were left out"))
        if sound.height:
            found.append(_arrays(int(device or 0), named[group], sound))
    return found, abstained


def _names(groups: Any) -> dict[Any, list[str]]:
    """Names by group, of what the recording left of them."""
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
    burst = rows["burst"].fill_null(0).to_numpy()
    return Readings(device, names, burst, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), values)
