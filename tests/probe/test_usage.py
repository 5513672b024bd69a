"""Counts of the kernel for a thread: new pages that a stretch of steps takes."""

from __future__ import annotations

import mmap
import threading
import time

import pytest

from fathom.probe.usage import INTERVAL_NS, PAGE, StretchUsage

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MADV_NOHUGEPAGE"), reason="needs Linux")
PAGES = 4000


def touched() -> mmap.mmap:
    """Take new pages of 4 KiB from the kernel."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, PAGES * PAGE, flags=private)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(PAGES):
        memory[page * PAGE] = 1
    return memory


def test_pages_are_counted_and_what_stays_is_growth():
    usage = StretchUsage()
    usage.begin(3)
    kept = touched()
    record = usage.end(2, 7)
    assert record is not None
    assert (record["steps"], record["burst"]) == (4, 2)
    assert PAGES <= record["faults"] < 1.2 * PAGES
    assert 0.8 * PAGES * PAGE <= record["resident"] <= 1.5 * PAGES * PAGE
    assert record["start"] < record["end"] and {"user", "system", "preempted"} <= record.keys()
    kept.close()
    usage.begin(7)
    touched().close()
    record = usage.end(3, 8)
    assert record is not None
    assert record["faults"] >= PAGES and record["resident"] < 0.2 * PAGES * PAGE


def test_the_first_record_has_the_cost_of_a_page_fault():
    usage, records = StretchUsage(), []
    for k in (0, 10):
        usage.begin(k)
        began, pages = time.perf_counter_ns(), touched()
        pages.close()
        took = (time.perf_counter_ns() - began) / PAGES
        records.append(usage.end(1, k + 5))
    first, second = records
    assert first["fault"] > 100 and "fault" not in second
    assert first["fault"] < 2 * took  # touching each page in Python takes longer


def test_no_record_without_a_step_or_from_another_thread():
    usage, records = StretchUsage(), []
    assert usage.end(1, 3) is None
    usage.begin(3)
    assert usage.end(1, 3) is None
    usage.begin(3)
    other = threading.Thread(target=lambda: records.append(usage.end(1, 5)))
    other.start()
    other.join()
    assert records == [None]


def test_a_stretch_is_dropped_if_another_thread_runs_a_step_of_it():
    usage = StretchUsage()
    usage.begin(0)
    now = time.time_ns()
    other = threading.Thread(target=usage.follow, args=(4, now + INTERVAL_NS))
    other.start()
    other.join()
    assert usage.end(1, 8) is None


def test_a_program_that_ends_reports_its_steps_until_the_last_reading():
    usage = StretchUsage()
    usage.begin(0)
    now = time.time_ns()
    usage.follow(4, now)  # too early
    usage.follow(9, now + INTERVAL_NS)
    touched().close()
    record = usage.end(1)
    assert record is not None and record["steps"] == 9 and record["faults"] < PAGES / 2
    usage.begin(0)
    usage.follow(4, now)
    assert usage.end(1) is None
