"""Rows of a ledger as results: means over the used windows, with their work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fathom.analysis.entries import DEVICE_WORK, Entry, cause_of
from fathom.analysis.intervals import Array
from fathom.analysis.ledger import Ledger
from fathom.analysis.results import LedgerRow, Window
from fathom.timing import median
from fathom.units import MS_PER_S, NS_PER_MS

RowKey = tuple[str, str]  # entry, detail
# Entries that recording lengthens: ops, the Python between them, and launches.
INFLATED = (Entry.DISPATCHING, Entry.PYTHON, Entry.LAUNCH_LATENCY)
WORKING = (*DEVICE_WORK, Entry.OPS)


def windows_of(ledger: Ledger) -> list[Window]:
    """Return every window, marked as used or with the reason why not."""
    windows = ledger.windows
    columns = (windows.starts, windows.ends, windows.kinds, windows.used, windows.steps, windows.why_not)
    rows = zip(*(c if isinstance(c, list) else c.tolist() for c in columns), strict=True)
    return [Window(*row) for row in rows]


def entries_of(ledger: Ledger, work: pl.DataFrame | None) -> list[LedgerRow]:
    """Return the ledger's rows, largest first.

    `work` has the columns of `work_by_family`, with `name` for the family; None if the work is unknown.
    """
    done = {} if work is None else {(row["entry"], row["name"]): row for row in work.iter_rows(named=True)}
    own = _own_ns(ledger)
    steps = int(ledger.windows.used.sum())
    result = []
    for name, detail, ns, pieces in _totals(ledger, ledger.windows.used):
        count = None if pieces is None or cause_of(name) else pieces / steps
        entry = LedgerRow(name, detail, ns / steps / NS_PER_MS, ns=ns, count=count)
        if entry.entry == Entry.WAITING_FOR_PEERS:
            entry.at_ceiling_ms = 0.0
        elif entry.entry in WORKING:
            entry.own_ms = own.get((entry.entry, entry.detail), ns) / steps / NS_PER_MS
            _add_work(entry, done.get((entry.entry, entry.detail)))
        result.append(entry)
    return result


def rounded_ns(ms: Sequence[float], total_ns: int) -> list[int]:
    """Return times in whole nanoseconds that sum exactly to `total_ns`, by largest remainder.

    `total_ns` must be the sum of `ms`, up to rounding.
    """
    exact = np.array([value * NS_PER_MS for value in ms])
    floor = np.floor(exact).astype(np.int64)
    missing = total_ns - int(floor.sum())
    order = np.argsort(floor - exact, kind="stable")
    if 0 < missing <= len(floor):
        floor[order[:missing]] += 1
    return floor.tolist()


def _own_ns(ledger: Ledger) -> dict[tuple[str, str], int]:
    """Return the full durations in ns of pieces in the used windows, by (entry, detail)."""
    used = ledger.own.filter(pl.col("window").is_in(ledger.windows.used.nonzero()[0].tolist()))
    totals = used.group_by("entry", "detail").agg(pl.col("own_ns").sum())
    return {(entry, detail): ns for entry, detail, ns in totals.iter_rows()}


def step_of(ledger: Ledger, windows: Array) -> dict[RowKey, tuple[float, float]]:
    """Return the mean (ms, count) per window in the mask, by (entry, detail).

    The count is of pieces of work or, for idle time, of recorded events.
    """
    steps = int(windows.sum())
    return {
        (name, detail): (ns / steps / NS_PER_MS, (pieces or 0) / steps)
        for name, detail, ns, pieces in _totals(ledger, windows)
    }


def _totals(ledger: Ledger, windows: Array) -> list[tuple[str, str, int, int | None]]:
    """Return (entry, detail, ns, count) summed over the windows in the mask, largest first."""
    rows = ledger.rows.filter(pl.col("window").is_in(windows.nonzero()[0].tolist()))
    counted = pl.when(pl.col("count").count() > 0).then(pl.col("count").sum())
    totals = rows.group_by("entry", "detail").agg(pl.col("ns").sum(), counted.alias("count"))
    return list(totals.sort("ns", "entry", "detail", descending=[True, False, False]).iter_rows())


def busy_ms(ledger: Ledger) -> float:
    """Return the milliseconds that a device works in the median used window; 0 without used windows."""
    used = ledger.windows.used.nonzero()[0].tolist()
    rows = ledger.rows.filter(pl.col("window").is_in(used), pl.col("entry").is_in(WORKING))
    worked = rows.group_by("window").agg(pl.col("ns").sum())["ns"].to_list()
    return median([*worked, *[0] * (len(used) - len(worked))]) / NS_PER_MS if used else 0.0


def _add_work(entry: LedgerRow, work: dict | None) -> None:
    """Set the work of a row, and its rates over the durations of its pieces (`own_ms`)."""
    if work is None:
        entry.abstained = "its work is unknown"
        return
    entry.flops, entry.bytes = work["flops"], work["bytes"]
    entry.flops_per_s = rate_of(entry.flops, entry.own_ms)
    entry.bytes_per_s = rate_of(entry.bytes, entry.own_ms)
    entry.at_ceiling_ms = None if work["need_ns"] is None else work["need_ns"] / NS_PER_MS
    entry.bound, entry.unbounded = work["bound"] or "", work["unbounded"]
    entry.unit, entry.product_flops = work["unit"], work["product"] or 0.0
    entry.recomputed_flops, entry.divided = work["again"] or 0.0, work.get("divided", False)
    if entry.flops is None or entry.bytes is None:
        entry.abstained = work["why"] or "its work is unknown"


def rate_of(amount: float | None, ms: float | None) -> float | None:
    """Return the amount per second; None if it is unknown or took no time."""
    return None if amount is None or not ms else amount / (ms / MS_PER_S)
