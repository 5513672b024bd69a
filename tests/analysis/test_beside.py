"""Compute that collectives slow down, on kernels laid out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.communication import slowed_by_collectives
from fathom.analysis.intervals import Spans
from fathom.analysis.work import NONE, Links

WIDTHS = ("[[8, 8]]", "[[8, 64]]")
SPACE = 1_000


def laid_out(kernels: list[tuple[int, int, bool]]) -> tuple[pl.DataFrame, Links, pl.DataFrame]:
    """Lay out kernels (op, ns, beside a collective) one after the other; op -1 is unknown."""
    rows, op = [], []
    for place, (number, ns, beside) in enumerate(kernels):
        start = place * SPACE
        rows.append({"kind": "compute", "family": "gemm", "start_ns": start, "end_ns": start + ns})
        op.append(number)
        if beside:
            rows.append({"kind": "collective", "family": "nccl", "start_ns": start, "end_ns": start + ns})
            op.append(NONE)
    table = pl.DataFrame(rows).with_columns(phase=pl.lit("timeline"))
    links = Links(
        np.array(op), np.array(op), np.zeros(len(op), int), pl.Series([""] * len(op)), np.zeros(2, int)
    )
    return table, links, pl.DataFrame({"name": ["aten::mm"] * 2, "shapes": WIDTHS})


def slowed(kernels: list[tuple[int, int, bool]], windows: int = 1) -> dict[str, float]:
    edges = np.linspace(0, len(kernels) * SPACE, windows + 1).astype(int)
    return slowed_by_collectives(*laid_out(kernels), Spans(edges[:-1], edges[1:]))


def test_kernels_beside_collectives_are_compared_with_those_of_their_shape() -> None:
    """Wide products take 300 ns alone and 400 beside; small ones 100 and 150."""
    small = [(0, 100, False), (0, 150, True)] * 5
    wide = [(1, 300, False), (1, 400, True)] * 4
    assert slowed(small + wide) == {"gemm": 5 * 50 + 4 * 100}
    assert slowed(small + wide, windows=3) == {"gemm": 5 * 50 + 4 * 100}


@pytest.mark.parametrize(
    "kernels",
    [
        [(0, 100, False)] * 9,  # none beside
        [(0, 100, True)] * 9,  # none alone
        [(0, 100, False)] * 3 + [(0, 200, True)] * 9,  # too few alone
        [(0, 200, False)] * 9 + [(0, 100, True)] * 9,  # faster beside
        [(NONE, 100, False)] * 9 + [(NONE, 200, True)] * 9,  # shapes unknown
        [(0, 100, False)] * 9 + [(1, 200, True)] * 9,  # other shapes
    ],
)
def test_nothing_is_claimed_without_a_comparison(kernels: list[tuple[int, int, bool]]) -> None:
    assert slowed(kernels) == {}


def test_without_windows_there_is_no_time() -> None:
    nothing = np.zeros(0, int)
    assert slowed_by_collectives(*laid_out([(0, 100, True)] * 9), Spans(nothing, nothing)) == {}


@given(st.integers(4, 9), st.integers(1, 500), st.integers(0, 400))
def test_the_time_is_that_of_all_kernels_beside_collectives(count: int, ns: int, more: int) -> None:
    kernels = [(0, ns, False), (0, ns + more, True)] * count
    assert slowed(kernels) == ({"gemm": count * more} if more else {})
