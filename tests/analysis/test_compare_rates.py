"""Rates are reciprocals of the step, and so is their noise."""

from __future__ import annotations

from math import log

import pytest

from fathom.analysis.compare.figures import ROWS, Figure, _figure

RATE = next(row for row in ROWS if row.name == "samples/s")


def of_step(ratio: float, low: float, high: float) -> Figure:
    """The rate of a side whose step is `ratio` times as long, with this interval, as its figure."""
    return _figure(RATE, [[1000.0], [1000.0 / ratio]], 10.0, log(high / low) / 2)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "moved"),
    [
        (4.7, 3.2, 7.0, True),  # a rate cannot fall by more than all of it
        (14.5, 6.0, 35.0, True),
        (1.02, 0.98, 1.06, False),
        (0.5, 0.18, 1.42, False),  # inconclusive, and the rate doubles
        (0.5, 0.4, 0.62, True),
    ],
)
def test_a_rate_moves_exactly_where_the_step_does(ratio: float, low: float, high: float, moved: bool) -> None:
    figure = of_step(ratio, low, high)
    assert figure.moved is moved is not (low <= 1 <= high)
