"""Micro-steps of an accumulated step as sub-windows, which tile the step's window on the device."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.windows import Boundary, Windows
from fathom.units import NS_PER_MS


class Micro(msgspec.Struct, frozen=True):
    """One micro-step; times in ns, `window` is the index of its step's window, `place` its number in it."""

    start_ns: int
    end_ns: int
    window: int
    place: int


AT_ONCE = 0.9  # of the step's work after its last micro-step begins: its batches were taken at once


def divided(steps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """`steps` without micro-steps, if steps take all their batches before they work on any.

    Their begins are the requests of batches, which then do not bound micro-steps. `work` has burst, at (its
    launch) and ns (its duration).
    """
    inner = steps.filter(pl.col("parent").is_not_null())
    if inner.is_empty():
        return steps
    last = inner.group_by("burst", "parent").agg(opened=pl.col("mark_ns").max())
    complete = steps.filter(pl.col("parent").is_null()).select("burst", "mark_ns", "end_ns", parent="step")
    launched = complete.join(last, on=["burst", "parent"], nulls_equal=True).join(
        work, on="burst", nulls_equal=True
    )
    launched = launched.filter(pl.col("at").is_between("mark_ns", "end_ns", closed="left"))
    late = pl.col("ns").filter(pl.col("at") >= pl.col("opened")).sum() / pl.col("ns").sum()
    shares = launched.group_by("burst", "parent").agg(late=late)
    if not shares.height or float(shares["late"].median() or 0.0) <= AT_ONCE:  # type: ignore[arg-type]
        return steps
    return steps.filter(pl.col("parent").is_null())


def micro_windows(steps: pl.DataFrame, windows: Windows, boundary: Boundary) -> list[Micro]:
    """Sub-windows of the used windows whose step has at least two micro-steps among `steps`.

    Each begins at the device's boundary of its mark, the first with its window, and ends where the next
    begins.
    """
    inner = steps.filter(pl.col("parent").is_not_null()).sort("mark_ns")
    parts: list[Micro] = []
    for window in np.flatnonzero(windows.used).tolist():
        mine = inner.filter(parent=int(windows.steps[window]), burst=int(windows.bursts[window]))
        if mine.height < 2:
            continue
        start, end = int(windows.starts[window]), int(windows.ends[window])
        opened = boundary.at(
            mine["mark_ns"].to_numpy(), mine["stream"].to_list(), mine["burst"].fill_null(0).to_numpy()
        )
        edges = np.maximum.accumulate(np.clip(opened, start, end))
        edges[0] = start
        bounds = [*edges.tolist(), end]
        parts += [Micro(bounds[i], bounds[i + 1], window, i) for i in range(mine.height)]
    return parts


def mean_by_place(parts: list[Micro]) -> list[float]:
    """Mean length in ms of the first, second … micro-step; [] unless every step has the same number."""
    counts = Counter(part.window for part in parts)
    if len(set(counts.values())) != 1:
        return []
    lengths = np.array([part.end_ns - part.start_ns for part in parts], float)
    places = np.array([part.place for part in parts])
    return [float(lengths[places == place].mean()) / NS_PER_MS for place in np.unique(places)]
