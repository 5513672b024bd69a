"""Find a gap in a recording that no program causes: the machine was suspended, or its clock was set."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

SILENCE = "silence"  # id of the problem
LONG_NS = 10_000_000_000  # shorter gaps may belong to the program


def hole_in(tables: Iterable[pl.DataFrame]) -> tuple[int, int] | None:
    """Return start and end, in ns, of a gap longer than the rest of the recording; None if there is none."""
    times = pl.concat([table.select("start_ns", "end_ns") for table in tables]).sort("start_ns")
    if times.height <= 1:
        return None
    starts, reached = times["start_ns"].to_numpy(), np.maximum.accumulate(times["end_ns"].to_numpy())
    gaps = starts[1:] - reached[:-1]
    at = int(np.argmax(gaps))
    if gaps[at] < LONG_NS or gaps[at] <= (reached[-1] - starts[0]) / 2:
        return None
    return int(reached[at]), int(starts[at + 1])
