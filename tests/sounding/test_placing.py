"""Ops placed in a timeline without any: against recordings whose ops are known, and by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.sounding import open_store
from fathom.sounding.raw import occurrences, placing
from fathom.sounding.schema import conform
from tests.support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "train_gpt-h200.fathom.zip"
TIMELINE = pl.col("phase") == "timeline"


def bared(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The tables without what a low-overhead timeline lacks: ops, and the threads of its launches."""
    launches = tables["launches"].with_columns(
        op=pl.when(TIMELINE).then(None).otherwise("op"), thread=pl.when(TIMELINE).then(7).otherwise("thread")
    )
    return {**tables, "ops": tables["ops"].filter(~TIMELINE), "launches": launches}


@pytest.fixture(scope="module")
def recorded() -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    store = open_store(EXAMPLE)
    tables = {name: store.table(name, 0).drop("rank").collect() for name in ("ops", "launches", "kernels")}
    return tables, store.table("steps", 0).collect()


def test_launches_of_a_real_timeline_get_the_ops_and_threads_that_they_had(recorded: Any) -> None:
    tables, steps = recorded
    placed = placing.place(bared(tables), steps)
    assert placed.share is not None and placed.share > 0.99
    names = [dict(zip(t["id"], t["name"], strict=True)) for t in (tables["ops"], placed.tables["ops"])]
    both = tables["launches"].with_columns(
        new=placed.tables["launches"]["op"], new_thread=placed.tables["launches"]["thread"]
    )
    work = tables["kernels"].select("burst", "correlation").unique()
    rows = both.filter(TIMELINE).join(work, on=["burst", "correlation"], how="semi").drop_nulls("new")
    assert rows.height > 4000
    assert (rows["thread"] == rows["new_thread"]).all()
    was = [names[0].get(op) for op in rows["op"]]
    assert was == [names[1].get(op) for op in rows["new"]]


def test_placed_ops_hold_their_parts_and_launches(recorded: Any) -> None:
    tables, steps = recorded
    result = placing.place(bared(tables), steps).tables
    ops = result["ops"].filter("inferred")
    assert ops.height > 10_000 and ops["id"].is_unique().all()
    assert (ops["end_ns"] >= ops["start_ns"]).all()
    around = ops.select(parent="id", first="start_ns", last="end_ns", on="thread")
    parts = ops.drop_nulls("parent").join(around, on="parent")
    assert parts.height == ops["parent"].drop_nulls().len()
    inside = (parts["start_ns"] >= parts["first"]) & (parts["end_ns"] <= parts["last"])
    assert inside.all() and (parts["thread"] == parts["on"]).all()
    calls = result["launches"].filter(TIMELINE).drop_nulls("op").join(around, left_on="op", right_on="parent")
    values = (calls["start_ns"] >= calls["first"]) & (calls["end_ns"] <= calls["last"])
    assert values.mean() > 0.99  # calls of threads that run at once may differ in their order


def test_a_timeline_with_ops_is_left_as_it_is(recorded: Any) -> None:
    tables, steps = recorded
    placed = placing.place(tables, steps)
    assert placed.share is None and placed.tables["ops"] is tables["ops"]


CODES = st.lists(st.integers(0, 4), max_size=24)


@settings(max_examples=100, deadline=None)
@given(CODES, CODES)
def test_pairs_are_equal_and_in_order(item: list[int], other: list[int]) -> None:
    first, second = np.array(item, np.int64), np.array(other, np.int64)
    result = occurrences.matching_pairs(first, second)
    assert (first[result[:, 0]] == second[result[:, 1]]).all()
    assert (np.diff(result, axis=0) > 0).all()
    if item == other:
        assert len(result) == len(item)


def longest(first: list[int], other: list[int]) -> int:
    """The length of a longest common subsequence, from its definition."""
    row = [0] * (len(other) + 1)
    for code in first:
        above, row = row, [0]
        for place, same in enumerate(other):
            row.append(above[place] + 1 if same == code else max(above[place + 1], row[place]))
    return row[-1]


@settings(max_examples=100, deadline=None)
@given(CODES, CODES, st.integers(0, 4))
def test_as_many_launches_as_possible_are_paired(first: list[int], other: list[int], reach: int) -> None:
    arrays = np.array(first, np.int64), np.array(other, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "LEAST_RUN", 1)
        assert len(occurrences.matching_pairs(*arrays)) == longest(first, other)
        patch.setattr(occurrences, "REACH", reach)  # pairs that are moved by more are left out
        near = occurrences.matching_pairs(*arrays)
    assert (arrays[0][near[:, 0]] == arrays[1][near[:, 1]]).all() and (np.diff(near, axis=0) > 0).all()


@settings(max_examples=100, deadline=None)
@given(CODES, st.integers(0, 24), st.lists(st.integers(10, 14), min_size=1, max_size=5))
def test_what_is_put_in_between_stays_alone(codes: list[int], at: int, strange: list[int]) -> None:
    more = codes[:at] + strange + codes[at:]
    result = occurrences.matching_pairs(np.array(codes, np.int64), np.array(more, np.int64))
    added = range(min(at, len(codes)), min(at, len(codes)) + len(strange))
    assert not set(result[:, 1].tolist()) & set(added)
    head = min(at, len(codes))
    assert len(result) >= max(head, len(codes) - head)  # one end at least is found whole


def step(number: int, phase: str, burst: int, mark: int, end: int) -> dict[str, Any]:
    about = {"step": number, "kind": "train", "phase": phase, "burst": burst}
    return {**about, "mark_ns": mark, "end_ns": end}


def made(launches: list[tuple[Any, ...]], ops: list[tuple[Any, ...]]) -> dict[str, pl.DataFrame]:
    """launches: phase, burst, correlation, thread, start, end, op, kernel, perhaps grid and duration."""
    where = ("phase", "burst", "correlation", "thread", "start_ns", "end_ns", "op")
    calls = [dict(zip(where, launch, strict=False), api="cudaLaunchKernel") for launch in launches]
    work = [
        {
            "phase": launch[0],
            "burst": launch[1],
            "correlation": launch[2],
            "name": launch[7],
            "kind": "compute",
        }
        | {"start_ns": launch[5], "end_ns": launch[5] + lasts, "grid": grid, "block": "1x1x1"}
        for launch in launches
        for grid, lasts in [launch[8:] or ("1x1x1", 1)]
    ]
    columns = ("id", "parent", "thread", "name", "start_ns", "end_ns")
    rows = [dict(zip(columns, item, strict=True), kind="op", phase="attribution", burst=9) for item in ops]
    return {
        "launches": conform("launches", pl.DataFrame(calls)),
        "kernels": conform("kernels", pl.DataFrame(work)),
        "ops": conform("ops", pl.DataFrame(rows)),
    }


def test_times_between_two_launches_are_interpolated_and_unknown_launches_have_no_op() -> None:
    known = [
        ("attribution", 9, 1, 7, 1100, 1120, 90, "a"),
        ("attribution", 9, 2, 7, 1300, 1320, 91, "b"),
        ("attribution", 9, 3, 8, 1500, 1520, 92, "c"),
    ]
    wanted = [
        ("timeline", 4, 1, 7, 50, 60, None, "a"),
        ("timeline", 4, 2, 7, 160, 170, None, "b"),
        ("timeline", 4, 3, 7, 180, 190, None, "new"),
        ("timeline", 4, 4, 7, 250, 260, None, "c"),
    ]
    ops = [(90, None, 7, "aten::a", 1090, 1130), (91, None, 7, "aten::b", 1210, 1330)]
    ops += [(92, None, 8, "aten::c", 1480, 1540), (93, 92, 8, "aten::part", 1490, 1495)]
    ops += [(94, None, 8, "Optimizer.step", 1550, 74_000)]  # the profiler stops in it, after the mark at 1600
    steps = pl.DataFrame([step(0, "timeline", 4, 0, 300), step(9, "attribution", 9, 1000, 1600)])
    steps = steps.with_columns(parent=pl.lit(None, pl.Int64))
    placed = placing.place(made(known + wanted, ops), steps)
    assert (placed.launches, placed.matched) == (4, 3)
    result = placed.tables["ops"].filter("inferred").sort("start_ns")
    times = {name: (a, b) for name, a, b in result.select("name", "start_ns", "end_ns").iter_rows()}
    assert times["aten::a"] == (
        45,
        66,
    )  # halfway to the mark at 0; 10 of 180 ns on to the next launch, 100 ns away
    assert times["aten::b"][0] == 60 + round(90 / 180 * 100)
    assert times["Optimizer.step"][1] == 300
    first, last = times["aten::c"]
    assert first <= times["aten::part"][0] <= times["aten::part"][1] <= last and first < 250 and last > 260
    calls = placed.tables["launches"].filter(TIMELINE).sort("correlation")
    names = dict(zip(result["id"], result["name"], strict=True))
    assert [names.get(op) for op in calls["op"]] == ["aten::a", "aten::b", None, "aten::c"]
    assert calls["thread"].to_list() == [7, 7, 7, 8]
    assert result.filter(name="aten::part")["parent"].item() == result.filter(name="aten::c")["id"].item()


@pytest.mark.parametrize(("lasts", "kept"), [(10_000, True), (11_000, True), (30_000, False)])
def test_in_a_step_of_other_sizes_shapes_are_kept_where_the_work_takes_as_long(
    lasts: int, kept: bool
) -> None:
    launches = [
        ("attribution", 9, 1, 7, 1100, 1120, 90, "a", "1x1x1", 10_000),
        ("attribution", 9, 2, 7, 1300, 1320, 91, "b", "30x1x1", 10_000),
        ("timeline", 4, 1, 7, 50, 60, None, "a", "1x1x1", lasts),
        ("timeline", 4, 2, 7, 160, 170, None, "b", "90x1x1", 10_000),
    ]
    ops = [(90, None, 7, "aten::a", 1090, 1130), (91, None, 7, "aten::b", 1210, 1330)]
    tables = made(launches, ops)
    tables["ops"] = tables["ops"].with_columns(shapes=pl.lit("[[2]]"))
    steps = pl.DataFrame([step(0, "timeline", 4, 0, 300), step(9, "attribution", 9, 1000, 1600)])
    placed = placing.place(tables, steps.with_columns(parent=pl.lit(None, pl.Int64)))
    shapes = dict(placed.tables["ops"].filter("inferred").select("name", "shapes").iter_rows())
    assert (placed.matched, shapes) == (2, {"aten::a": "[[2]]" if kept else None, "aten::b": None})
