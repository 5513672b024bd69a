"""Why the device ran nothing: every gap, split by what its next piece of work waited for."""

from __future__ import annotations

import numpy as np

from fathom.analysis.causes import RECEIVE
from fathom.analysis.device import BEFORE_ALL, COMMUNICATION, WAITING, DeviceWork
from fathom.analysis.entries import Entry, idle_entry
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import Array, Spans, covered, intersect

# Window, entry, detail, nanoseconds, and pieces of work; of idle rows, events that the profiler recorded.
Row = tuple[int, str, str, int, int | None]
SINCE_EVER = BEFORE_ALL // 2  # where a gap begins that no recorded work precedes


def explain(gaps: Spans, work: DeviceWork, host: HostRecords, starts: Array, ends: Array) -> list[Row]:
    """Nanoseconds of idle time in each window by cause; they sum to what the gaps take of the windows.

    A gap is judged whole, and only then cut at the windows' bounds. The one after the last piece of work is
    laid to the thread that runs the steps.
    """
    after = np.searchsorted(work.starts, gaps.ends, "left")
    gaps = Spans(np.where(after == 0, SINCE_EVER, gaps.starts), gaps.ends)
    ended = after < len(work.starts)
    after_all = Spans(gaps.starts[~ended], gaps.ends[~ended])
    gaps, after = Spans(gaps.starts[ended], gaps.ends[ended]), after[ended]
    known = work.known[after]
    rows = _rows(Entry.UNEXPLAINED, "", _only(gaps, ~known), starts, ends)
    rows += _device_side(_only(gaps, known), after[known], work, starts, ends)
    rows += _before_launches(_only(gaps, known), after[known], work, host, starts, ends)
    return rows + host_side(after_all, host, host.caller, starts, ends)


def _device_side(gaps: Spans, after: Array, work: DeviceWork, starts: Array, ends: Array) -> list[Row]:
    """What is left of each gap once the next piece of work was being launched."""
    launched = work.launched[after]
    receives = np.array(
        [COMMUNICATION <= kind <= WAITING and bool(RECEIVE.search(name)) for kind, name in work.groups]
    )
    receiving = receives[work.group[after]]
    left = Spans(np.clip(launched, gaps.starts, gaps.ends), gaps.ends)
    waits = launched < gaps.starts
    return [
        *_rows(Entry.COMMUNICATION, "before a receive", _only(left, receiving), starts, ends),
        *_rows(Entry.DEVICE_GAP, "", _only(left, waits & ~receiving), starts, ends),
        *_counted(Entry.LAUNCH_LATENCY, "", _only(left, ~waits & ~receiving), starts, ends),
    ]


def _before_launches(
    gaps: Spans, after: Array, work: DeviceWork, host: HostRecords, starts: Array, ends: Array
) -> list[Row]:
    """The part of each gap before its work was launched, by what the launching thread did."""
    until = np.clip(work.launched[after], gaps.starts, gaps.ends)
    threads = work.thread[after]
    rows: list[Row] = []
    for thread in np.unique(threads):
        mine = (threads == thread) & (until > gaps.starts)
        rows += host_side(_only(Spans(gaps.starts, until), mine), host, int(thread), starts, ends)
    return rows


def host_side(
    stretches: Spans, host: HostRecords, thread: int | None, starts: Array, ends: Array
) -> list[Row]:
    """Nanoseconds of the stretches in each window by what the thread did; they sum to the stretches."""
    rest = covered(stretches, starts, ends)
    rows: list[Row] = []
    for (cause, detail), held in host.activity(thread) if len(stretches.starts) else []:
        inside = intersect(stretches, held)
        part = covered(inside, starts, ends)
        events = host.began(thread) if cause == Entry.DISPATCHING.cause else None
        rows += _counted(idle_entry(cause), detail, inside, starts, ends, events)
        rest = rest - part
    return rows + _nonzero(Entry.UNEXPLAINED, "", rest)


def _rows(entry: str, detail: str, held: Spans, starts: Array, ends: Array) -> list[Row]:
    return _nonzero(entry, detail, covered(held, starts, ends))


def _counted(
    entry: str, detail: str, held: Spans, starts: Array, ends: Array, events: Array | None = None
) -> list[Row]:
    """Rows with how many of `events` (sorted) lie in each window's part of `held`; None: one a stretch."""
    found = np.ones(len(held.starts), np.int64)
    if events is not None:
        found = np.searchsorted(events, held.ends) - np.searchsorted(events, held.starts)
    window = np.searchsorted(ends, held.starts, "right")
    inside = (window < len(ends)) & (held.ends > held.starts)
    counts = np.bincount(window[inside], weights=found[inside], minlength=len(ends)).astype(np.int64)
    ns = covered(held, starts, ends)
    return [(int(w), entry, detail, int(ns[w]), int(counts[w])) for w in np.flatnonzero(ns)]


def _nonzero(entry: str, detail: str, ns: Array) -> list[Row]:
    return [(int(window), entry, detail, int(ns[window]), None) for window in np.flatnonzero(ns)]


def _only(held: Spans, rows: Array) -> Spans:
    return Spans(held.starts[rows], held.ends[rows])
