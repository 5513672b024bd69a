"""Waits of the clean steps, as hooks timed them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from fathom.analysis.clean import typical
from fathom.analysis.entries import ALIASES, PRECEDENCE, Entry, causes_of
from fathom.analysis.intervals import NOTHING, Array, Spans, covered, merge, of_rows, subtract
from fathom.analysis.steps import Stretch
from fathom.units import NS_PER_MS

# Causes whose hooks run in every phase.
HOOKED = causes_of(Entry.CHECKPOINT, Entry.COMPILATION, Entry.INPUT, Entry.GC)
SEEN = 0.1  # of the clean steps' wait: least wait of profiled steps that shows the hidden share


class Waits:
    """The recorded waits of one rank's step thread, by cause."""

    def __init__(self, waits: pl.DataFrame, caller: int | None) -> None:
        own = pl.col("thread").is_null() if caller is None else pl.col("thread").fill_null(caller) == caller
        rows = waits.with_columns(cause=pl.col("cause").replace(ALIASES))
        rows = rows.filter(pl.col("cause").is_in(HOOKED), own | pl.lit(caller is None))
        self._spans: dict[str, Spans] = {}
        taken = NOTHING
        for cause in sorted(rows["cause"].unique().to_list(), key=PRECEDENCE.index):
            mine = subtract(of_rows(rows.filter(cause=cause)), taken)
            self._spans[cause], taken = mine, merge(taken, mine)

    def of_steps(self, runs: list[Stretch], usual: bool = False) -> dict[str, float]:
        """Return the milliseconds per clean step by cause; if `usual`, only of steps near the median."""
        known = [(*span, run.timed_ns) for run in runs for span in run.host_spans()]
        lengths, counts = np.array([span[:2] for span in known], float).reshape(-1, 2).T
        starts, ends, timed = np.array([span[2:] for span in known], np.int64).reshape(-1, 3).T
        chosen = typical(lengths) if usual else np.ones(len(known), bool)
        starts = np.maximum(starts, timed)
        return self._each(starts[chosen], ends[chosen], float(counts[chosen].sum()))

    def of_windows(self, starts: Array, ends: Array) -> dict[str, float]:
        """Return the milliseconds per window by cause."""
        return self._each(starts, ends, float(len(starts)))

    def _each(self, starts: Array, ends: Array, steps: float) -> dict[str, float]:
        if not steps:
            return {}
        return {
            cause: float(covered(spans, starts, ends).sum()) / steps / NS_PER_MS
            for cause, spans in self._spans.items()
        }


def exposed(clean: Mapping[str, float], profiled: Mapping[str, float], idle: Mapping[str, float]) -> dict:
    """Return the part of the clean steps' waits in which the device is idle, by cause, in ms per step.

    `profiled` and `idle` are the waits and idle times of profiled steps. The share of waits that profiled
    steps hide behind device work is hidden in clean steps too. If profiled steps hardly waited (a loader
    catches up while the profiler starts), the whole wait counts.
    """
    result = {}
    for cause, wait in clean.items():
        before = profiled.get(cause, 0.0)
        seen = before > SEEN * wait and before > 0
        result[cause] = wait * min(idle.get(cause, 0.0) / before, 1.0) if seen else wait
    return result
