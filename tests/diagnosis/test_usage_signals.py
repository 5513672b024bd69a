"""The operating system's counts for the thread of the steps, read from tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from fathom.diagnosis.signals import UnknownSignalError
from fathom.diagnosis.signals.usage import allocator, usage
from fathom.sounding.schema import TABLES, conform

MS = 1_000_000
BURST_NS = 5_000 * MS


def stretch(start_ms: int, **counts: Any) -> dict[str, Any]:
    """Ten steps of 100 ms, a tenth of it system time."""
    known = {"steps": 10, "system_ns": 100 * MS, "ready_ns": 20 * MS, "faults": 5000, "resident_bytes": 4096}
    times = {"start_ns": start_ms * MS, "end_ns": (start_ms + 1000) * MS, "phase": "clean"}
    return times | known | counts


def recorded(*rows: dict[str, Any], burst_ns: int | None = BURST_NS, **environment: str) -> Any:
    marks = [] if burst_ns is None else [{"step": 50, "mark_ns": burst_ns, "phase": "timeline"}]
    tables = {"usage": list(rows), "steps": marks}
    frames = {
        name: conform(name, pl.DataFrame(mine, schema_overrides=TABLES[name])) if mine else None
        for name, mine in tables.items()
    }
    empty = {name: pl.DataFrame(schema=TABLES[name]) for name in tables}
    manifest = SimpleNamespace(environment=environment)
    return SimpleNamespace(
        rows=lambda name: (empty[name] if frames[name] is None else frames[name]).lazy(),
        store=SimpleNamespace(manifest=manifest),
        read={},
    )


def test_stretches_before_the_first_burst_are_added():
    read = usage(recorded(stretch(0), stretch(2000, faults=7000, steps=20), stretch(8000, faults=0)))
    assert (read.system, read.faults, read.ready) == (0.1, 400.0, 0.02)
    assert read.grown == pytest.approx(8192 / 30) and read.ticks == 50.0


def test_the_cost_of_a_fault_is_that_of_any_row():
    rows = stretch(0, fault_ns=3000), stretch(2000), stretch(4000, phase="settle")
    assert usage(recorded(*rows)).fault_ns == 3000 and usage(recorded(stretch(0))).fault_ns is None


@pytest.mark.parametrize("burst_ns", [None, 0])
def test_without_any_before_it_all_count(burst_ns):
    assert usage(recorded(stretch(0), stretch(2000, faults=0), burst_ns=burst_ns)).faults == 250.0


def test_counts_that_were_not_recorded_are_unknown():
    partly = usage(recorded(stretch(0), stretch(2000, ready_ns=None, resident_bytes=None)))
    assert partly.ready is None and partly.grown is None and partly.system == 0.1
    for given in (recorded(), recorded(stretch(0, phase="settle")), recorded(stretch(0, faults=None))):
        with pytest.raises(UnknownSignalError):
            usage(given)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "glibc"),
        ({"LD_PRELOAD": "/home/alloc-team/libhook.so"}, "glibc"),
        ({"LD_PRELOAD": "/usr/lib/libhook.so:/usr/lib/libjemalloc.so.2"}, "libjemalloc.so.2"),
        ({"MALLOC_MMAP_MAX_": "0"}, "MALLOC_MMAP_MAX_"),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0"}, "GLIBC_TUNABLES"),
    ],
)
def test_the_allocator_is_glibc_as_it_is_or_another_one(environment, expected):
    assert allocator(recorded(**environment)) == expected
