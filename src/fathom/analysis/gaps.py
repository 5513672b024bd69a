"""Causes of idle time: each gap is split by the reasons why the next piece of work had not started."""

from __future__ import annotations

import numpy as np

from fathom.analysis.causes import RECEIVE
from fathom.analysis.columns import distinct
from fathom.analysis.device import BEFORE_ALL, COMMUNICATION, COPY, WAITING, DeviceWork
from fathom.analysis.entries import Entry, idle_entry
from fathom.analysis.host import WAITS_NS, HostRecords
from fathom.analysis.intervals import Array, Spans, covered, intersect, subtract

# (window, entry, detail, ns, count). The count is of pieces of work or, in idle rows, of recorded events.
WindowRow = tuple[int, str, str, int, int | None]
SINCE_EVER = BEFORE_ALL // 2  # start of a gap before the first recorded work


def explain(gaps: Spans, work: DeviceWork, host: HostRecords, starts: Array, ends: Array) -> list[WindowRow]:
    """Return idle time by window and cause, which sums to the time of the gaps in the windows [starts, ends).

    Causes are assigned to whole gaps, which are then cut at window bounds. The activity of the thread that
    runs the steps explains the gap after the last piece of work.
    """
    after = np.searchsorted(work.starts, gaps.ends, "left")
    gaps = Spans(np.where(after == 0, SINCE_EVER, gaps.starts), gaps.ends)
    ended = after < len(work.starts)
    after_all = Spans(gaps.starts[~ended], gaps.ends[~ended])
    gaps, after = Spans(gaps.starts[ended], gaps.ends[ended]), after[ended]
    known = work.known[after]
    rows = _rows(Entry.UNEXPLAINED, "", _only(gaps, ~known), starts, ends)
    rows += _device_side(_only(gaps, known), after[known], work, host, starts, ends)
    rows += _before_launches(_only(gaps, known), after[known], work, host, starts, ends)
    return rows + host_side(after_all, host, host.caller, starts, ends)


def _device_side(
    gaps: Spans, after: Array, work: DeviceWork, host: HostRecords, starts: Array, ends: Array
) -> list[WindowRow]:
    """Return the part of each gap after the launch of its next piece of work, by cause."""
    launched = work.launched[after]
    receives = np.array(
        [COMMUNICATION <= kind <= WAITING and bool(RECEIVE.search(name)) for kind, name in work.groups]
    )
    receiving = receives[work.group[after]]
    copies = work.classes[work.group[after]] == COPY
    left = Spans(np.clip(launched, gaps.starts, gaps.ends), gaps.ends)
    waits = launched < gaps.starts
    late = ~waits & ~receiving
    return [
        *_rows(Entry.COMMUNICATION, "before a receive", _only(left, receiving), starts, ends),
        *_rows(Entry.DEVICE_GAP, "", _only(left, waits & ~receiving), starts, ends),
        *_launched(_only(left, late & ~copies), host, starts, ends),
        *_before_copies(_only(left, late & copies), host, starts, ends),
    ]


def _before_copies(latency: Spans, host: HostRecords, starts: Array, ends: Array) -> list[WindowRow]:
    """Return launch latency of copies, without long waits in an open call for work that was not recorded."""
    waiting = intersect(latency, host.copying)
    waiting = _only(waiting, waiting.ends - waiting.starts >= WAITS_NS)
    rows = _rows(Entry.UNRECORDED, "", waiting, starts, ends)
    return rows + _launched(subtract(latency, waiting), host, starts, ends)


def _launched(latency: Spans, host: HostRecords, starts: Array, ends: Array) -> list[WindowRow]:
    """Return launch latency, without the time in which the launching call loaded code."""
    rows: list[WindowRow] = []
    for what, spans in host.first:
        rows += _counted(Entry.FIRST_USE, what, intersect(latency, spans), starts, ends)
        latency = subtract(latency, spans)
    return rows + _counted(Entry.LAUNCH_LATENCY, "", latency, starts, ends)


def _before_launches(
    gaps: Spans, after: Array, work: DeviceWork, host: HostRecords, starts: Array, ends: Array
) -> list[WindowRow]:
    """Return the part of each gap before the launch of its next piece, by the launching thread's activity."""
    until = np.clip(work.launched[after], gaps.starts, gaps.ends)
    threads = work.thread[after]
    rows: list[WindowRow] = []
    for thread in distinct(threads):
        mine = (threads == thread) & (until > gaps.starts)
        rows += host_side(_only(Spans(gaps.starts, until), mine), host, int(thread), starts, ends)
    return rows


def host_side(
    stretches: Spans, host: HostRecords, thread: int | None, starts: Array, ends: Array
) -> list[WindowRow]:
    """Return the time of the stretches by window and thread activity; the rest is "unexplained"."""
    rest = covered(stretches, starts, ends)
    rows: list[WindowRow] = []
    for (cause, detail), spans in host.activity(thread) if len(stretches.starts) else []:
        inside = intersect(stretches, spans)
        part = covered(inside, starts, ends)
        events = host.began(thread) if cause == Entry.DISPATCHING.cause else None
        rows += _counted(idle_entry(cause), detail, inside, starts, ends, events)
        rest = rest - part
    return rows + _nonzero(Entry.UNEXPLAINED, "", rest)


def _rows(entry: str, detail: str, spans: Spans, starts: Array, ends: Array) -> list[WindowRow]:
    return _nonzero(entry, detail, covered(spans, starts, ends))


def _counted(
    entry: str, detail: str, spans: Spans, starts: Array, ends: Array, events: Array | None = None
) -> list[WindowRow]:
    """Return rows with the number of sorted `events` in each window's part of `spans` (None: one each)."""
    number = np.ones(len(spans.starts), np.int64)
    if events is not None:
        number = np.searchsorted(events, spans.ends) - np.searchsorted(events, spans.starts)
    window = np.searchsorted(ends, spans.starts, "right")
    inside = (window < len(ends)) & (spans.ends > spans.starts)
    counts = np.bincount(window[inside], weights=number[inside], minlength=len(ends)).astype(np.int64)
    ns = covered(spans, starts, ends)
    return [(int(w), entry, detail, int(ns[w]), int(counts[w])) for w in np.flatnonzero(ns)]


def _nonzero(entry: str, detail: str, ns: Array) -> list[WindowRow]:
    return [(int(window), entry, detail, int(ns[window]), None) for window in np.flatnonzero(ns)]


def _only(spans: Spans, rows: Array) -> Spans:
    return Spans(spans.starts[rows], spans.ends[rows])
