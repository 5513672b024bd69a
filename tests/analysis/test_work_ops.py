"""Ops are counted once, and what cannot be known is said, never guessed."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.work import annotate_ops, op_work
from fathom.analysis.work.registry import FORMULAS, evaluate
from tests.support.work_frames import frame

F32 = ["float", "float"]
LINEAR = {"shapes": "[[8, 16], [4, 16]]", "dtypes": json.dumps(F32), "values": '["", ""]'}
MM = {"shapes": "[[8, 16], [16, 4]]", "dtypes": json.dumps(F32), "values": '["", ""]'}


def op(number: int, name: str, parent: int | None = None, start: int = 0, **rest: Any) -> dict[str, Any]:
    return {"id": number, "parent": parent, "name": name, "start_ns": start, "end_ns": start + 1, **rest}


def test_an_op_whose_parts_are_there_has_no_work_of_its_own() -> None:
    ops = annotate_ops(
        frame("ops", [op(1, "aten::linear", **LINEAR), op(2, "aten::t", 1), op(3, "aten::mm", 1, **MM)])
    )
    assert ops["flops"].to_list() == [None, 0.0, 2.0 * 8 * 16 * 4]
    assert ops["abstained"].to_list() == ["its parts carry its work", None, None]


def test_an_op_without_parts_carries_its_work_itself() -> None:
    ops = annotate_ops(frame("ops", [op(1, "aten::linear", **LINEAR), op(2, "aten::copy_", 1)]))
    assert ops["flops"][0] == 2.0 * 8 * 16 * 4


def test_the_overload_behind_a_number_is_counted_once() -> None:
    call = {"shapes": "[[100], []]", "dtypes": '["float", "double"]', "values": '["", ""]'}
    ops = annotate_ops(frame("ops", [op(1, "aten::mul", **call), op(2, "aten::mul", 1, **call)]))
    assert ops["flops"].to_list() == [None, 100.0]


def test_a_lookup_is_counted_whole_where_its_index_is_spread_for_a_gather() -> None:
    lookup = {
        "shapes": "[[256, 64], [], [100]]",
        "dtypes": '["float", "", "long"]',
        "values": '["", "0", ""]',
    }
    spread = {"shapes": "[[256, 64], [], [100, 64], []]", "dtypes": '["float", "", "long", ""]'}
    spread["values"] = '["", "0", "", "False"]'
    ops = annotate_ops(
        frame("ops", [op(1, "aten::index_select", **lookup), op(2, "aten::gather", 1, **spread)])
    )
    assert ops["bytes"].to_list() == [2 * 100 * 64 * 4 + 100 * 8, 0.0]
    assert ops["abstained"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("name", "rest", "why"),
    [
        ("mine::op", MM, "no formula for this operator"),
        ("aten::mm", {}, "shapes were not recorded"),
        ("aten::mm", MM | {"shapes": "[[8, 16], [15, 4]]"}, "incompatible"),
        ("aten::mm", MM | {"shapes": "[[8, 16], [16"}, "malformed"),
        ("aten::mm", MM | {"shapes": "[[8, 16]]"}, "malformed"),
        ("aten::mm", MM | {"shapes": "[[8, -1], [-1, 4]]"}, "malformed"),
        ("aten::mm", MM | {"shapes": "[[8, null], [16, 4]]"}, "malformed"),
        ("aten::mm", MM | {"shapes": "[[8], [16, 4]]"}, "malformed"),
        ("aten::mm", MM | {"dtypes": '["float", "GenericList"]'}, "not recorded as a tensor"),
        ("aten::mm", MM | {"dtypes": '{"a": 1}'}, "malformed"),
        ("aten::mm", MM | {"shapes": f"[[{10**200}, {10**200}], [{10**200}, 4]]"}, "malformed"),
    ],
)
def test_what_is_not_known_is_abstained_from(name: str, rest: dict[str, str], why: str) -> None:
    row = annotate_ops(frame("ops", [op(1, name, **rest)])).row(0, named=True)
    assert row["flops"] is row["bytes"] is None
    assert why in row["abstained"]


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("aten::_flash_attention_forward", [[64, 4, 32]] * 3, [""] * 15),
        ("flash_attn::_flash_attn_varlen_forward", [[64, 4, 32]] * 3, [""] * 15),
        ("flash_attn::_flash_attn_forward", [[2, 8, 4, 32]] * 3, [*[""] * 5, "True", "128", "0"]),
    ],
)
def test_attention_of_unknown_lengths_or_a_window_is_abstained_from(
    name: str, shapes: list[list[int]], values: list[str]
) -> None:
    rest = len(values) - 3
    work = evaluate(
        name, json.dumps(shapes + [[]] * rest), json.dumps(["float"] * 3 + [""] * rest), json.dumps(values)
    )
    assert work.flops is work.bytes is None
    assert "length" in work.why or "window" in work.why


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)
TEXT = st.one_of(st.text(max_size=10), JSON.map(json.dumps), st.just("[[4, 4], [4, 4]]"))
TYPES = st.lists(st.sampled_from(["float", "TensorList", "Scalar", "", "long int", "bool"]), max_size=5)


@given(st.sampled_from(sorted(FORMULAS)), TEXT, TEXT | TYPES.map(json.dumps), st.none() | TEXT)
def test_nonsense_never_breaks_and_never_counts_as_nothing(
    name: str, shapes: str, dtypes: str, values: str | None
) -> None:
    work = evaluate(name, shapes, dtypes, values)
    assert work.why or (work.flops is not None and work.bytes is not None)
    assert all(figure is None or figure >= 0 for figure in (work.flops, work.bytes))


def test_lists_of_tensors_have_flops_but_bytes_only_with_evidence() -> None:
    call = ("aten::_foreach_add_", "[[[3, 4], [5]], []]", '["TensorList", "Scalar"]', '["", "1"]')
    assert (evaluate(*call).flops, evaluate(*call).bytes) == (17.0, None)
    assert "dtype" in evaluate(*call).why
    assert evaluate(*call, element="bf16").bytes == 2 * 2 * 17


def test_op_work_is_the_mean_over_used_windows() -> None:
    rows = [op(k, "aten::mm", start=10 * k, **MM) for k in range(4)]
    rows.append(op(9, "ProfilerStep#1", start=20, kind="annotation"))
    windows = pl.DataFrame(
        {"start_ns": [0, 10, 20], "end_ns": [10, 20, 40], "used": [False, True, True]},
    )
    table = op_work(frame("ops", rows), windows)
    assert table["name"].to_list() == ["aten::mm"]
    result = table.row(0, named=True)
    assert result["flops"] == 3 * 2 * 8 * 16 * 4 / 2
    assert result["why"] == ""


def test_op_work_abstains_as_soon_as_one_call_is_unknown() -> None:
    rows = [op(1, "aten::mm", **MM), op(2, "aten::mm")]
    windows = pl.DataFrame({"start_ns": [0], "end_ns": [10], "used": [True]})
    result = op_work(frame("ops", rows), windows).row(0, named=True)
    assert result["flops"] is None
    assert result["why"] == "shapes were not recorded"


@pytest.mark.parametrize("rows", [[], [op(1, "aten::view")]])
def test_tables_without_work(rows: list[dict[str, Any]]) -> None:
    assert annotate_ops(frame("ops", rows)).height == len(rows)
    windows = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "used": pl.Boolean})
    assert op_work(frame("ops", rows), windows).height == 0


def call(number: int, name: str, start: int, shaped: bool) -> dict[str, object]:
    """A product in the timeline, or in the attribution phase, which has shapes."""
    shapes, dtypes = ("[[2, 3], [3, 4]]", '["float", "float"]') if shaped else (None, None)
    phase, burst = ("attribution", 2) if shaped else ("timeline", 1)
    row: dict[str, object] = {"id": number, "parent": None, "kind": "op", "name": name, "phase": phase}
    return row | {"burst": burst, "start_ns": start, "shapes": shapes, "dtypes": dtypes, "values": None}


def work_in(windows: int, plain: list[dict[str, object]], deep: list[dict[str, object]]) -> dict[str, Any]:
    """The work by name in windows of 100 ns; the step with shapes begins at 1000."""
    texts = {"shapes": pl.String, "dtypes": pl.String, "values": pl.String}
    steps = pl.DataFrame({"phase": ["attribution"], "parent": [None], "mark_ns": [1000], "end_ns": [2000]})
    starts = [100 * k for k in range(windows)]
    table = pl.DataFrame({"start_ns": starts, "end_ns": [s + 100 for s in starts], "used": [True] * windows})
    rows = op_work(pl.DataFrame(plain + deep, schema_overrides=texts), table, steps)
    return {row["name"]: row for row in rows.iter_rows(named=True)}


def test_windows_without_shapes_take_them_from_steps_that_called_an_op_equally_often() -> None:
    names = ["aten::mm", "aten::mm", "aten::bmm"]
    plain = [call(n, name, 10 * n, False) for n, name in enumerate(names)]
    deep = [call(n, name, 1000 + n, True) for n, name in enumerate(names[:2])]
    by_name = work_in(1, plain, deep)
    assert by_name["aten::mm"]["flops"] == 2 * (2 * 2 * 3 * 4)
    assert by_name["aten::bmm"]["flops"] is None
    assert "different number" in by_name["aten::bmm"]["why"]


@pytest.mark.parametrize("evaluating", [1, 2, 3])
def test_work_is_known_unless_most_windows_contain_an_evaluation(evaluating: int) -> None:
    plain = [call(k, "aten::mm", 100 * k, False) for k in range(4)]
    plain += [call(10 + k, "aten::mm", 100 * k + 50, False) for k in range(evaluating)]
    known = work_in(4, plain, [call(20, "aten::mm", 1000, True)])["aten::mm"]
    assert known["flops"] == (2 * 2 * 3 * 4 if evaluating <= 2 else None)
