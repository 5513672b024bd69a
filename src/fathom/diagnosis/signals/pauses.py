"""Pauses: of the device between two pieces of work, and of threads that launch."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array, union
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Holds
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

SHORT_NS = 300_000  # about ten launches under a profiler: longer pauses are not due to launching
TURN_NS = 5_000_000  # sys.getswitchinterval(): time for which a thread keeps the interpreter from others
_COLUMNS = ["phase", "burst", "start_ns", "end_ns", "name"]
EARLY, LATE = 0.1, 0.25  # of a switch interval: tolerance before and after a multiple of it


@signal("device.short_pauses_ms", "ms per step")
def short_pauses(recorded: Recorded) -> float:
    """Idle time of the device in pauses so short that only launching explains them."""
    busy = recorded.busy
    total = 0
    for start, end in zip(*recorded.used, strict=True):
        inner = (busy.ends > start) & (busy.starts < end)
        edges = np.concatenate(([start], np.stack((busy.starts, busy.ends), 1)[inner].ravel(), [end]))
        pauses = np.diff(np.clip(edges, start, end))[::2]
        total += int(pauses[pauses < SHORT_NS].sum())
    return total / recorded.steps / NS_PER_MS


@signal("host.holds", "per step")
def holds(recorded: Recorded) -> Holds:
    """Pauses between two records of a launching thread; a long runtime call is not a pause."""
    calls = recorded.own_calls
    launching = recorded.launching.to_list()
    shown = pl.col("kind").ne_missing("python") & pl.col("thread").is_in(launching)
    ops, steps = recorded.ops.select("kind", "thread", *_COLUMNS).filter(shown), recorded.steps
    by_thread = [_of_thread(recorded, ops, calls, thread) for thread in launching]
    starts, ends = (
        np.concatenate([pauses[side] for pauses in by_thread] or [np.zeros(0, int)]) for side in (0, 1)
    )
    places = {place for pauses in by_thread for place in pauses[2]}
    turns = (ends - starts) / TURN_NS
    beside = turns - np.round(turns)
    spans = union(starts, ends)
    return Holds(
        float((spans.ends - spans.starts).sum()) / steps / NS_PER_MS,
        len(starts) / steps,
        len(places),
        float(((beside >= -EARLY) & (beside <= LATE)).mean()) if len(starts) else 0.0,
    )


def _of_thread(
    recorded: Recorded, ops: pl.DataFrame, calls: pl.DataFrame, thread: int
) -> tuple[Array, Array, list[str]]:
    """Begin and end of the pauses, and the records that they follow."""
    named = calls.filter(thread=thread).rename({"api": "name"}).select(_COLUMNS)
    tables = [ops.filter(thread=thread).select(_COLUMNS), named]
    edges = [
        table.select("phase", "burst", "name", at=at) for table in tables for at in ("start_ns", "end_ns")
    ]
    rows = pl.concat(edges).sort("phase", "burst", "at")
    rows = rows.with_columns(until=pl.col("at").shift(-1).over("phase", "burst"))
    rows = rows.filter(pl.col("until") - pl.col("at") >= (1 - EARLY) * TURN_NS)
    rows = rows.filter(recorded.inside(rows.rename({"at": "start_ns"})))
    rows = rows.join(named, left_on=["at", "until"], right_on=["start_ns", "end_ns"], how="anti")
    return rows["at"].to_numpy(), rows["until"].to_numpy(), rows["name"].to_list()
