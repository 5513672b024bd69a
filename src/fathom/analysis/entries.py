"""Rows of a ledger as results: means over the used windows, with the work that was done."""

from __future__ import annotations

import polars as pl

from fathom.analysis.device import COMMUNICATION, COMPUTE, COPY, ENTRIES, MOVING, WAITING
from fathom.analysis.ledger import Ledger
from fathom.analysis.processor import OPS
from fathom.analysis.results import Entry, Window
from fathom.timing import median

MS = 1e6
HOST_CAUSED = "idle: "
DEVICE_CAUSED = ("idle: device gap", "idle: no work")
# Recording slows down what it records: ops, the Python between them, launches. Other waits come after them.
INFLATED = ("idle: dispatching", "idle: python", "idle: launch latency")
WORKING = (ENTRIES[COMPUTE], ENTRIES[COMMUNICATION], ENTRIES[MOVING], ENTRIES[COPY], OPS)


def windows_of(ledger: Ledger) -> list[Window]:
    """Every window, with whether it was used and why not."""
    found = ledger.windows
    columns = (found.starts, found.ends, found.kinds, found.used, found.steps, found.why_not)
    rows = zip(*(c if isinstance(c, list) else c.tolist() for c in columns), strict=True)
    return [Window(*row) for row in rows]


def entries_of(ledger: Ledger, work: pl.DataFrame | None) -> list[Entry]:
    """The ledger's entries, largest first. `work` has entry, name, flops, bytes and why, a step."""
    used = ledger.windows.used.nonzero()[0]
    rows = ledger.rows.filter(pl.col("window").is_in(used.tolist()))
    counted = pl.when(pl.col("count").count() > 0).then(pl.col("count").sum())
    totals = rows.group_by("entry", "detail").agg(pl.col("ns").sum(), counted.alias("count"))
    done = {} if work is None else {(row["entry"], row["name"]): row for row in work.iter_rows(named=True)}
    own = _own_ns(ledger)
    found = []
    for row in totals.sort("ns", "entry", "detail", descending=[True, False, False]).iter_rows(named=True):
        count = None if row["count"] is None else row["count"] / len(used)
        entry = Entry(row["entry"], row["detail"], row["ns"] / len(used) / MS, ns=row["ns"], count=count)
        if entry.entry == ENTRIES[WAITING]:
            entry.at_ceiling_ms = 0.0
        elif entry.entry in WORKING:
            entry.own_ms = own.get((entry.entry, entry.detail), row["ns"]) / len(used) / MS
            _add_work(entry, done.get((entry.entry, entry.detail)))
        found.append(entry)
    return found


def _own_ns(ledger: Ledger) -> dict[tuple[str, str], int]:
    """By entry and detail: how long its pieces ran in the used windows, what other work hid of them too."""
    used = ledger.own.filter(pl.col("window").is_in(ledger.windows.used.nonzero()[0].tolist()))
    totals = used.group_by("entry", "detail").agg(pl.col("own_ns").sum())
    return {(entry, detail): ns for entry, detail, ns in totals.iter_rows()}


def busy_ms(ledger: Ledger) -> float:
    """What a device works in the median used window; 0 without any."""
    used = ledger.windows.used.nonzero()[0].tolist()
    rows = ledger.rows.filter(pl.col("window").is_in(used), pl.col("entry").is_in(WORKING))
    worked = rows.group_by("window").agg(pl.col("ns").sum())["ns"].to_list()
    return median([*worked, *[0] * (len(used) - len(worked))]) / MS if used else 0.0


def _add_work(entry: Entry, work: dict | None) -> None:
    """What the entry's kernels had to do, and how fast they did it while they ran."""
    if work is None:
        entry.abstained = "its work is not known"
        return
    entry.flops, entry.bytes = work["flops"], work["bytes"]
    entry.flops_per_s = _rate(entry.flops, entry.own_ms)
    entry.bytes_per_s = _rate(entry.bytes, entry.own_ms)
    entry.at_ceiling_ms = None if work["need_ns"] is None else work["need_ns"] / MS
    entry.bound, entry.unbounded = work["bound"] or "", work["unbounded"]
    entry.unit, entry.product_flops = work["unit"], work["product"] or 0.0
    entry.recomputed_flops = work["again"] or 0.0
    if entry.flops is None or entry.bytes is None:
        entry.abstained = work["why"] or "its work is not known"


def _rate(amount: float | None, ms: float | None) -> float | None:
    return None if amount is None or not ms else amount / (ms / 1e3)


def take_off_observer(entries: list[Entry], added_ms: float) -> None:
    """Set clean_ms: each entry without its share of what the recording added to a usual step.

    Shares are in proportion to the time of the entry, first from INFLATED entries, then from other idle time
    that the host caused. Work is never rescaled; what those cannot hold stays in the observer entry.
    """
    excess = max(added_ms, 0.0)
    host = [e for e in entries if e.entry.startswith(HOST_CAUSED) and e.entry not in DEVICE_CAUSED]
    for entry in entries:
        entry.clean_ms = entry.ms
    for group in ([e for e in host if e.entry in INFLATED], [e for e in host if e.entry not in INFLATED]):
        total = sum(entry.ms for entry in group)
        taken = min(excess, total)
        for entry in group:
            entry.clean_ms = entry.ms * (1 - taken / total) if total else entry.ms
        excess -= taken
