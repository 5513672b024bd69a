"""Bursts in which one kernel runs all the time: no shift of their samples shows, and none is needed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fathom.analysis.folding import bare
from fathom.analysis.folding.counters import fold_samples
from tests.support import folding_truth as truth

LEVELS = np.array([[97.0, 31.0, 4.0, 0.0], [60.0, 12.0, 40.0, 9.0]])


def launches(count, busy_ns, gap_ns, every_other=0):
    """(start, end, family): the same one, or two in turn."""
    return [
        (n * (busy_ns + gap_ns), n * (busy_ns + gap_ns) + busy_ns, n % 2 * every_other) for n in range(count)
    ]


def folded(rows, shift_ms=0.0, bursts=2):
    """Work before and after a burst is sampled too, because the program goes on: no sample is idle."""
    result = truth.sampled(np.random.default_rng(3), [rows] * bursts, LEVELS, reach_us=5.0)
    busy = result.samples.filter(pl.col("values").list.first() > 30)
    by = round(shift_ms * 1e6)
    moved = busy.with_columns(pl.col("start_ns") + by, pl.col("end_ns") + by)
    return result, fold_samples(moved, result.kernels, [result.names])


@pytest.mark.parametrize("shift_ms", [0.0, 1.3, -1.9])
def test_a_kernel_that_always_runs_is_told_though_no_shift_shows(shift_ms):
    actual, result = folded(launches(12, 3_000_000, 200), shift_ms)
    assert result.abstained == [] and all(item.steady for item in result.alignment)
    by_name = dict(result.frame.select("counter", "value").iter_rows())
    for name, level in zip(actual.names, LEVELS[0], strict=True):
        assert by_name[bare(name)] == pytest.approx(level, rel=0.02, abs=0.1)
    within = 2 * (12 * 3_000_000 - 2 * 2_500_000) / 20_000  # of either end nothing that clocks may mistake
    assert result.frame["samples"].max() <= within


def test_a_steady_burst_shorter_than_its_clock_error_gives_nothing():
    _, result = folded(launches(4, 1_000_000, 200), bursts=1)
    assert all(item.steady for item in result.alignment) and result.frame.is_empty()


def test_two_kernels_in_turn_are_aligned_and_never_steady():
    _, result = folded(launches(40, 300_000, 200, every_other=1))
    assert not any(item.steady for item in result.alignment)
