"""Calls whose recorded start cannot be true are put between their neighbours."""

from __future__ import annotations

import polars as pl

from fathom.sounding.raw.traces import in_order
from fathom.sounding.schema import conform

MS = 1_000_000


def launches(*starts_ms: float, burst: int = 1) -> pl.DataFrame:
    """Calls numbered 10, 20, … that begin at these times and take 0.01 ms."""
    starts = [int(ms * MS) for ms in starts_ms]
    rows = {
        "correlation": [10 * (at + 1) for at in range(len(starts))],
        "start_ns": starts,
        "end_ns": [start + MS // 100 for start in starts],
        "phase": ["timeline"] * len(starts),
        "burst": [burst] * len(starts),
        "api": ["cudaLaunchKernel"] * len(starts),
    }
    return conform("launches", pl.DataFrame(rows))


def test_calls_in_order_stay_as_they_are() -> None:
    rows = launches(1.0, 1.1, 1.3, 9.0)
    assert in_order(rows).equals(rows)
    assert in_order(rows.clear()).equals(rows.clear())


def test_a_call_begins_before_those_that_follow_it() -> None:
    """The second and third say when the device came to them, 13 ms later."""
    fixed = in_order(launches(1.0, 14.0, 14.1, 1.3, 1.4))
    assert fixed["start_ns"].to_list() == [int(ms * MS) for ms in (1.0, 1.1, 1.2, 1.3, 1.4)]
    assert fixed["end_ns"].to_list() == [int(ms * MS) for ms in (1.01, 1.11, 1.21, 1.31, 1.41)]
    assert fixed["correlation"].to_list() == [10, 20, 30, 40, 50]


def test_bursts_are_separate_and_calls_without_a_number_stay() -> None:
    later = launches(20.0, 20.1, burst=2)
    loose = launches(50.0).with_columns(correlation=pl.lit(None, pl.Int64))
    rows = pl.concat([later, launches(1.0, 30.0, 1.2), loose])
    fixed = in_order(rows)
    assert fixed["start_ns"].to_list() == [int(ms * MS) for ms in (20.0, 20.1, 1.0, 1.1, 1.2, 50.0)]


def test_threads_that_begin_at_the_same_time_are_in_order() -> None:
    rows = launches(1.0, 1.04, 1.02)
    assert in_order(rows).equals(rows)


def test_a_launch_ends_before_the_next_call_begins() -> None:
    """The second was submitted 5 ms later, when the device came to it; copies may take that long."""
    rows = launches(1.0, 1.1, 1.3, 9.0)
    long = pl.when(pl.col("correlation") == 20).then(int(6.1 * MS)).otherwise("end_ns")
    fixed = in_order(rows.with_columns(end_ns=long))
    assert fixed["start_ns"].equals(rows["start_ns"])
    assert fixed["end_ns"].to_list() == [int(ms * MS) for ms in (1.01, 1.3, 1.31, 9.01)]
    copies = rows.with_columns(end_ns=long, api=pl.lit("cudaMemcpyAsync"))
    assert in_order(copies).equals(copies)
