"""Statistics of a set of timings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom import timing

samples = st.lists(st.floats(0.001, 1e6), min_size=2, max_size=30)


@given(samples)
def test_an_interval_lies_within_the_sample_and_is_repeatable(values: list[float]) -> None:
    result = timing.interval(values)
    assert result is not None
    low, high = result
    assert min(values) <= low <= high <= max(values)
    assert timing.interval(values) == result


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(7)
    values = 0
    for trial in range(200):
        low, high = timing.interval(random.normal(10, 1, 40), seed=trial) or (0, 0)
        values += low <= 10 <= high
    assert 0.88 <= values / 200 <= 0.99


def test_an_interval_needs_two_values() -> None:
    assert timing.interval([3.0]) is None


def test_more_steps_narrow_the_interval() -> None:
    random = np.random.default_rng(3)
    few, many = (timing.interval(random.normal(5, 1, n)) or (0, 0) for n in (10, 1000))
    assert many[1] - many[0] < (few[1] - few[0]) / 3


def test_one_outlier_does_not_move_the_median_or_the_spread() -> None:
    values = [10.0, 10.1, 9.9, 10.05, 9.95]
    assert timing.median([*values, 1e9]) == pytest.approx(10.0, abs=0.05)
    assert timing.mad([*values, 1e9]) < 0.2


def test_mad_estimates_a_normal_deviation() -> None:
    assert timing.mad(np.random.default_rng(1).normal(0, 2, 20_000)) == pytest.approx(2, rel=0.05)


def test_the_median_of_no_values_raises() -> None:
    with pytest.raises(ValueError, match="no values"):
        timing.median([])
