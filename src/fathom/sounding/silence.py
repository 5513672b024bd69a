"""A hole in a recording that no program leaves: the machine slept, or its clock was set."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

SILENCE = "silence"  # the problem that says so
LONG_NS = 10_000_000_000  # between any two records: no step waits so long for anything


def hole_in(tables: Iterable[pl.DataFrame]) -> tuple[int, int] | None:
    """From when until when there is no record, where that is longer than all else that was recorded."""
    times = pl.concat([table.select("start_ns", "end_ns") for table in tables]).sort("start_ns")
    if times.height <= 1:
        return None
    starts, reached = times["start_ns"].to_numpy(), np.maximum.accumulate(times["end_ns"].to_numpy())
    gaps = starts[1:] - reached[:-1]
    at = int(np.argmax(gaps))
    if gaps[at] < LONG_NS or gaps[at] <= (reached[-1] - starts[0]) / 2:
        return None
    return int(reached[at]), int(starts[at + 1])
