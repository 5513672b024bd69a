"""Shares that fold to values outside 0 to 1 are reported as unknown, whatever else a family has."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.folding.rows import possible
from fathom.sounding.schema import conform

HITS = "lts__average_t_sector_hit_rate_realtime.ratio"
L1 = "l1tex__t_sector_hit_rate.ratio"
BYTES = "sm__average_thread_inst_executed_pred_on_per_inst_executed_realtime.ratio"  # threads: up to 32
BUSY = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"


def frame(*rows: tuple[str, str, float, float]) -> pl.DataFrame:
    names = ("family", "counter", "value", "error")
    return conform("counters", pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows]))


def test_impossible_shares_are_left_out_with_a_reason() -> None:
    """As on an H200: a block of 36 µs alone on the device, after a kernel whose lines are written back."""
    kept, said = possible(
        frame(("nll", HITS, 1.561, 0.062), ("nll", BUSY, 0.8, 0.1), ("gemm", HITS, 0.34, 0.002))
    )
    assert list(kept.select("family", "counter").iter_rows()) == [("nll", BUSY), ("gemm", HITS)]
    (reason,) = said
    assert reason.what == f"{HITS} of nll" and "156 %" in reason.why


@pytest.mark.parametrize(
    ("value", "error"), [(1.02, 0.074), (1.015, 0.0001), (-0.01, 0.0), (0.0, 1.6), (-0.3, 0.2)]
)
def test_what_its_error_allows_stays(value: float, error: float) -> None:
    kept, said = possible(frame(("k", HITS, value, error), ("k", L1, value, error)))
    assert len(kept) == 2 and not said


@given(st.floats(1.5, 32.0), st.sampled_from([BYTES, BUSY]))
def test_only_shares_have_such_bounds(value: float, counter: str) -> None:
    kept, said = possible(frame(("k", counter, value, 0.0)))
    assert len(kept) == 1 and not said
