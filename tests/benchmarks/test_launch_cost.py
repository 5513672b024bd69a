"""Added cost of a launch, from rounds with and without."""

from __future__ import annotations

import sys

import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
from launch_cost import Round, reported


def rounds(first: int, other: int) -> list[Round]:
    """Five rounds of six launches of 10 us, of kinds that differ, in each thread; one was disturbed."""
    usual = [10_000 + kind * 100 + (first if n == 0 else other) for n, kind in enumerate((0, 1, 2, 0, 1, 2))]
    return [(usual, usual)] * 4 + [([ns + 50_000 for ns in usual], usual)]


def test_what_was_planted_comes_back() -> None:
    for result in reported(rounds(300_000, 500), rounds(0, 0), kinds=3):
        assert result["without_us"] == pytest.approx(10.1)
        assert result["first_us"] == pytest.approx(301) and result["launch_us"] == pytest.approx(0.5)
