"""Which ops of a processor compute in float64, by what the profiler wrote of them."""

from __future__ import annotations

import polars as pl
import pytest

from fathom.analysis.work import with_own_time
from fathom.diagnosis.signals.operations import _shares, _takes_doubles

COLUMNS = ["id", "parent", "name", "start_ns", "end_ns", "dtypes", "shapes", "source", "module", "backward"]


@pytest.mark.parametrize(
    ("dtypes", "shapes", "expected"),
    [
        ('["double", "double"]', "[[8, 4], [4, 8]]", True),
        ('["float", "double"]', "[[8, 4], [4]]", True),
        ('["float", "double"]', "[[8, 4], []]", False),  # Adam divides by a Python float
        ('["double", "Scalar"]', "[[], []]", False),
        ('["float"]', "[[8, 4]]", False),
        (None, None, False),
    ],
)
def test_only_tensors_of_doubles_count(dtypes, shapes, expected):
    assert _takes_doubles(dtypes, shapes) is expected


def test_shares_are_of_an_ops_own_time_and_name_a_forward_line():
    double, single = '["double"]', '["float"]'
    ops = pl.DataFrame(
        [
            (0, None, "aten::linear", 0, 100, double, "[[8]]", "train.py(3): forward", "Linear_0", False),
            (1, 0, "aten::mm", 10, 90, double, "[[8]]", "train.py(3): forward", "Linear_0", False),
            (2, None, "aten::mm", 100, 220, double, "[[8]]", "train.py(9): main", None, False),
            (3, None, "aten::mm", 220, 420, single, "[[8]]", "train.py(5): forward", "Linear_1", False),
            (4, None, "aten::add", 420, 500, single, "[[8]]", "train.py(6): main", None, False),
        ],
        schema=COLUMNS,
        orient="row",
    )
    shares = _shares(with_own_time(ops))
    assert shares["aten::mm"] == (pytest.approx(200 / 400), "train.py(3): forward", "Linear_0")
    assert shares["aten::linear"][0] == 1.0 and "aten::add" not in shares


def test_without_a_module_the_line_is_named_unless_it_starts_the_backward_pass():
    double = '["double"]'
    ops = pl.DataFrame(
        [
            (0, None, "aten::mul", 0, 100, double, "[[8]]", "train.py(9): main", None, True),
            (1, None, "aten::mul", 100, 120, double, "[[8]]", "train.py(58): update", None, False),
            (2, None, "aten::sum", 120, 220, double, "[[8]]", "train.py(9): main", None, True),
            (3, 2, "aten::fill_", 130, 140, '["float"]', "[[8]]", "train.py(9): main", None, True),
        ],
        schema=COLUMNS,
        orient="row",
    )
    shares = _shares(with_own_time(ops))
    assert shares["aten::mul"] == (1.0, "train.py(58): update", None)
    assert shares["aten::sum"] == (1.0, None, None)
