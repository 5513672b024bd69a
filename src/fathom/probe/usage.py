"""The operating system's counts for the thread that runs the steps: page faults and processor time."""

from __future__ import annotations

import mmap
from typing import NamedTuple

from fathom.pristine import os, time
from fathom.probe.faults import guarded
from fathom.probe.hooks.reading import content, ready, resource
from fathom.probe.records import Record
from fathom.probe.threads import native_id

RESIDENT = "/proc/self/statm"  # pages: size, resident, ...
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
TRIED_BYTES = 4 << 20  # mapped, filled and unmapped, to measure what a page fault costs
NS_PER_S = 1e9
INTERVAL_NS = 500_000_000  # between two readings
Counts = dict[str, int]


class Reading(NamedTuple):
    """Counts at the start of step k."""

    k: int
    ns: int
    thread: int
    counts: Counts


class StretchUsage:
    """Counts of a stretch of steps, at its ends and every half second, as the program may end during it."""

    def __init__(self) -> None:
        self._first: Reading | None = None
        self._last: Reading | None = None
        self._tried = False

    @guarded("reading what the steps use")
    def begin(self, k: int) -> None:
        """Begin a stretch at the start of step k."""
        self._first = self._last = _read(k)

    def follow(self, k: int, ns: int) -> None:
        """Read the counts at the start of step k, at time `ns`, if it is time to."""
        if self._last is not None and ns - self._last.ns >= INTERVAL_NS:  # at most marks it is not
            self._read_again(k)

    @guarded("reading what the steps use")
    def _read_again(self, k: int) -> None:
        self._last = _read(k)
        if self._first is None or self._last is None or self._last.thread != self._first.thread:
            self.drop()

    def drop(self) -> None:
        """Discard the stretch."""
        self._first = self._last = None

    @guarded("reading what the steps use")
    def end(self, burst: int, k: int | None = None) -> Record | None:
        """Return the `usage` record of the steps up to k, or else of those up to the last reading.

        None without a step, or if another thread runs them now.
        """
        last = self._last if k is None else _read(k)
        first, self._first, self._last = self._first, None, None
        if first is None or last is None or last.k <= first.k or last.thread != first.thread:
            return None
        used = {name: now - first.counts[name] for name, now in last.counts.items() if name in first.counts}
        about = {"thread": first.thread, "burst": burst, "steps": last.k - first.k, **(self._once() or {})}
        return {"t": "usage", **about, "start": first.ns, "end": last.ns, **used}

    @guarded("measuring a page fault")
    def _once(self) -> Counts:
        """Return the cost of a page fault, which the first record has."""
        tried, self._tried = self._tried, True
        cost = None if tried else fault_ns()
        return {} if cost is None else {"fault": cost}


def _read(k: int) -> Reading | None:
    counts = _counts()
    return Reading(k, time.time_ns(), native_id(), counts) if counts else None


def _counts() -> Counts:
    """Return the counts of this thread, and the resident bytes of the process; empty where none is known."""
    who = getattr(resource, "RUSAGE_THREAD", None)
    if who is None:
        return {}
    used = resource.getrusage(who)
    counts = {
        "user": int(NS_PER_S * used.ru_utime),
        "system": int(NS_PER_S * used.ru_stime),
        "faults": used.ru_minflt,
        "loads": used.ru_majflt,
        "preempted": used.ru_nivcsw,
    }
    waited, resident = ready(), _resident()
    counts.update({} if waited is None else {"ready": waited})
    counts.update({} if resident is None else {"resident": resident})
    return counts


def fault_ns() -> int | None:
    """Return the ns of a page fault of this thread that reads no storage, its share of unmapping included.

    It takes 2 to 10 µs, by machine and by the size of the pages. None if it cannot be measured.
    """
    who = getattr(resource, "RUSAGE_THREAD", None)
    if who is None or not PAGE:
        return None
    before = resource.getrusage(who).ru_minflt
    memory, byte = mmap.mmap(-1, TRIED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), b"\1"
    each = byte * (TRIED_BYTES // PAGE)
    began = time.perf_counter_ns()
    memory[::PAGE] = each
    mapped = time.perf_counter_ns()
    memory[::PAGE] = each
    filled = time.perf_counter_ns()
    memory.close()
    ended = time.perf_counter_ns()
    faults = resource.getrusage(who).ru_minflt - before
    ns = (mapped - began) - (filled - mapped) + (ended - filled)
    return max(ns, 0) // faults if faults else None


def _resident() -> int | None:
    try:
        return int(content(RESIDENT).split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return None
