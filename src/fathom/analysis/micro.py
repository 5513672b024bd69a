"""Divide the window of a step with gradient accumulation into one sub-window per micro-step."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct, filled
from fathom.analysis.windows import Boundary, Windows
from fathom.units import NS_PER_MS


class Micro(msgspec.Struct, frozen=True):
    """One micro-step: times in ns, the index of its step's `window`, and its index in the step (`place`)."""

    start_ns: int
    end_ns: int
    window: int
    place: int


AT_ONCE = 0.9  # a step took all its batches at once if more of its work follows its last micro-step's mark


def divided(steps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return `steps`, without micro-steps if steps request all their batches before working on any.

    A micro-step begins when its batch is requested. If all batches are requested first, these times do not
    bound the work. `work` has burst, at (launch time) and ns (duration).
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
    """Return sub-windows of the used windows whose step has at least two micro-steps in `steps`.

    A sub-window starts at the device's boundary of its mark (the first one with its window), and ends where
    the next one starts.
    """
    inner = steps.filter(pl.col("parent").is_not_null()).sort("mark_ns")
    parts: list[Micro] = []
    for window in np.flatnonzero(windows.used).tolist():
        mine = inner.filter(parent=int(windows.steps[window]), burst=int(windows.bursts[window]))
        if mine.height < 2:
            continue
        start, end = int(windows.starts[window]), int(windows.ends[window])
        opened = boundary.at(
            mine["mark_ns"].to_numpy(), mine["stream"].to_list(), filled(mine["burst"], 0).to_numpy()
        )
        edges = np.maximum.accumulate(np.clip(opened, start, end))
        edges[0] = start
        bounds = [*edges.tolist(), end]
        parts += [Micro(bounds[i], bounds[i + 1], window, i) for i in range(mine.height)]
    return parts


def mean_by_place(parts: list[Micro]) -> list[float]:
    """Return the mean ms of the first micro-step, the second …; [] unless all steps have equally many."""
    counts = Counter(part.window for part in parts)
    if len(set(counts.values())) != 1:
        return []
    lengths = np.array([part.end_ns - part.start_ns for part in parts], float)
    places = np.array([part.place for part in parts])
    return [float(lengths[places == place].mean()) / NS_PER_MS for place in distinct(places)]
