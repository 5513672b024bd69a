"""Compute that collectives slow down, on kernels and ops laid out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.communication import slowed_by_collectives, slowed_on_host
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


def ops_of_host(lengths: list[tuple[str, int, int]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Lay out steps of ops (name, ns alone, ns beside a collective); only the last step has shapes."""
    rows: list[dict[str, object]] = []
    steps = []
    for step in range(7):
        phase, begin = "timeline" if step < 6 else "attribution", step * 100 * SPACE
        steps.append({"parent": None, "mark_ns": begin, "phase": phase})
        for place, (name, alone, beside) in enumerate([op for op in lengths for _ in range(2)]):
            start, odd = begin + (place + 1) * SPACE, place % 2
            shapes = WIDTHS[place // 2 % 2] if phase == "attribution" else None
            ns = (beside if odd else alone) + (1, -1, 0)[step % 3]
            rows.append({"kind": "op", "name": name, "start_ns": start, "end_ns": start + ns, "thread": 1,
                         "shapes": shapes, "phase": phase})  # fmt: skip
            if odd:
                gloo = {"kind": "annotation", "name": "gloo:all_reduce", "thread": 2, "shapes": None}
                rows.append(gloo | {"start_ns": start - 5, "end_ns": start + ns + 5, "phase": phase})
    ops = pl.DataFrame(rows, infer_schema_length=None).with_row_index("id")
    none = pl.lit(None, pl.Int64)
    ops = ops.with_columns(pl.col("id").cast(pl.Int64), parent=none, burst=none)
    return ops, pl.DataFrame(steps, schema_overrides={"parent": pl.Int64})


def slowed_ops(lengths: list[tuple[str, int, int]]) -> dict[str, float]:
    ops, steps = ops_of_host(lengths)
    return slowed_on_host(ops, steps, Spans(np.array([0]), np.array([600 * SPACE])))


def test_ops_of_a_processor_are_compared_with_those_of_their_shape() -> None:
    """Per step, one op of each shape runs alone and one beside an all-reduce."""
    assert slowed_ops([("aten::mm", 100, 150), ("aten::mm", 300, 400)]) == {"aten::mm": 6 * 50 + 6 * 100}


@pytest.mark.parametrize(
    "lengths",
    [
        [("aten::mm", 100, 100)],
        [("aten::mm", 200, 100)],  # faster beside
        [("c10d::allreduce_", 100, 300)],  # calls collectives, and is no compute
    ],
)
def test_ops_that_are_not_slowed_claim_nothing(lengths: list[tuple[str, int, int]]) -> None:
    assert slowed_ops(lengths) == {}


def test_a_difference_within_the_scatter_is_none() -> None:
    ops, steps = ops_of_host([("aten::mm", 100, 110)])
    outlier = (pl.col("id") == 0) & (pl.col("name") == "aten::mm")
    ops = ops.with_columns(end_ns=pl.col("end_ns") + pl.when(outlier).then(500).otherwise(0))
    assert slowed_on_host(ops, steps, Spans(np.array([0]), np.array([600 * SPACE]))) == {}


def test_ops_with_ops_beneath_them_count_by_their_own_time() -> None:
    """A product calls another op, which takes 10 ns in each."""
    ops, steps = ops_of_host([("aten::mm", 100, 150)])
    beneath = ops.filter(pl.col("kind") == "op").with_columns(
        id=pl.col("id") + 1_000, parent="id", name=pl.lit("aten::t"), end_ns=pl.col("start_ns") + 10
    )
    slowed = slowed_on_host(pl.concat([ops, beneath]), steps, Spans(np.array([0]), np.array([600 * SPACE])))
    assert slowed == {"aten::mm": 6 * 50}
