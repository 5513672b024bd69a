"""Micro-steps of an accumulated step as sub-windows: they tile the step's window on the device."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.windows import Boundary, Windows
from fathom.units import NS_PER_MS


class Micro(msgspec.Struct, frozen=True):
    """Nanoseconds; `window` is the index of the window that it is a part of, `place` its number there."""

    start_ns: int
    end_ns: int
    window: int
    place: int


TOGETHER = 0.9  # of the step's work after its last opening: its batches were taken at once


def divided(steps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """`steps` without the micro-steps of steps that take all their batches before they work on any.

    Their openings are when batches were asked for, which then says nothing about micro-steps. `work` has
    burst, at (when the host asked for it) and ns (how long it took).
    """
    inner = steps.filter(pl.col("parent").is_not_null())
    if inner.is_empty():
        return steps
    last = inner.group_by("burst", "parent").agg(opened=pl.col("mark_ns").max())
    whole = steps.filter(pl.col("parent").is_null()).select("burst", "mark_ns", "end_ns", parent="step")
    found = whole.join(last, on=["burst", "parent"], nulls_equal=True).join(
        work, on="burst", nulls_equal=True
    )
    found = found.filter(pl.col("at").is_between("mark_ns", "end_ns", closed="left"))
    late = pl.col("ns").filter(pl.col("at") >= pl.col("opened")).sum() / pl.col("ns").sum()
    shares = found.group_by("burst", "parent").agg(late=late)
    if not shares.height or float(shares["late"].median() or 0.0) <= TOGETHER:  # type: ignore[arg-type]
        return steps
    return steps.filter(pl.col("parent").is_null())


def micro_windows(steps: pl.DataFrame, windows: Windows, boundary: Boundary) -> list[Micro]:
    """Sub-windows of the used windows whose step has at least two micro-steps among `steps`.

    One begins at the device's boundary of its opening, the first with its window; each ends with the next.
    """
    inner = steps.filter(pl.col("parent").is_not_null()).sort("mark_ns")
    found: list[Micro] = []
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
        found += [Micro(bounds[i], bounds[i + 1], window, i) for i in range(mine.height)]
    return found


def mean_by_place(found: list[Micro]) -> list[float]:
    """Mean milliseconds of the first, the second … micro-step; [] unless every step has as many."""
    counts = {one.window: 0 for one in found}
    for one in found:
        counts[one.window] += 1
    if len(set(counts.values())) != 1:
        return []
    lengths = np.array([one.end_ns - one.start_ns for one in found], float)
    places = np.array([one.place for one in found])
    return [float(lengths[places == place].mean()) / NS_PER_MS for place in np.unique(places)]
