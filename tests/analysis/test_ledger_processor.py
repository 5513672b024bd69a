"""The innermost op at each instant, against looking at every instant."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.processor import innermost
from tests.support.timelines import MAIN, OTHER, Timeline, devices_of, examination_of


@st.composite
def nested(draw: st.DrawFn, low: int = 0, high: int = 60, depth: int = 0) -> list[tuple[int, int]]:
    """Intervals of which any two nest or are apart."""
    result: list[tuple[int, int]] = []
    cursor = low
    while cursor < high and depth < 4 and draw(st.booleans()):
        start = draw(st.integers(cursor, high - 1))
        end = draw(st.integers(start + 1, high))
        result += [(start, end), *draw(nested(start, end, depth + 1))]
        cursor = end
    return result


@given(nested())
def test_innermost_is_the_op_that_began_last(ops: list[tuple[int, int]]) -> None:
    starts = np.array([a for a, _ in ops], np.int64)
    ends = np.array([b for _, b in ops], np.int64)
    index, segments = innermost(starts, ends)
    by_name = {
        t: (ops[op][1] - ops[op][0])
        for op, a, b in zip(index.tolist(), segments.starts.tolist(), segments.ends.tolist(), strict=True)
        for t in range(a, b)
    }
    shortest = {
        t: min(b - a for a, b in ops if a <= t < b) for t in range(60) if any(a <= t < b for a, b in ops)
    }
    assert by_name == shortest
    assert int((segments.ends - segments.starts).sum()) == len(by_name)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=8))
def test_ops_that_do_not_nest_still_cover_each_instant_once(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([a for a, _ in pairs], np.int64)
    ends = starts + np.array([length for _, length in pairs], np.int64)
    _, segments = innermost(starts, ends)
    covered = {t for a, b in zip(starts.tolist(), ends.tolist(), strict=True) for t in range(a, b)}
    assert int((segments.ends - segments.starts).sum()) == len(covered)


def test_a_window_that_the_recorder_marked_is_about_the_program(tmp_path: Path) -> None:
    """With --step-on none marks come from another thread, which runs none of the program's ops."""
    made = Timeline()
    made.step(0, 1000, kind="host", source="host", thread=OTHER)
    made.op("aten::mm", 200, 500, thread=MAIN)
    made.op("aten::mm", 600, 900, thread=MAIN)
    ledger = devices_of(tmp_path / "s.fathom", made)[0].ledger
    assert {(e.entry, e.ns) for e in ledger} == {
        ("ops", 600),
        ("idle: python", 100),
        ("idle: unexplained", 300),  # before the first and after the last record an op may have run
    }


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from([MAIN, OTHER]), st.integers(0, 1900), st.integers(1, 60)),
        min_size=1,
        max_size=9,
    )
)
def test_ops_of_all_threads_that_run_steps_are_work(ops: list[tuple[int, int, int]]) -> None:
    """As in a server whose requests run the model on a pool of threads."""
    made, free = Timeline(), {MAIN: 0, OTHER: 0}
    for number in range(4):
        made.step(500 * number, 500 * (number + 1), thread=(MAIN, OTHER)[number % 2])
    working = set()
    for thread, start, length in sorted(ops, key=lambda op: op[1]):
        start = max(start, free[thread])
        free[thread] = start + length
        made.op("aten::mm", start, start + length, thread=thread)
        working.update(range(start, min(start + length, 2000)))
    with tempfile.TemporaryDirectory() as folder:
        ledger = devices_of(Path(folder) / "s.fathom", made)[0].ledger
    assert sum(e.ns for e in ledger if e.entry == "ops") == len(working)
    assert {e.entry for e in ledger} <= {"ops", "idle: unexplained"}


def test_time_between_the_ops_of_a_pool_of_threads_is_not_called_python(tmp_path: Path) -> None:
    def examined(name: str, *threads: int):
        made = Timeline()
        for number in range(8):
            thread = threads[number % len(threads)]
            start = number * 1_000_000
            made.step(start, start + 1_000_000, kind="inference", source="forward", thread=thread)
            made.op("aten::mm", start, start + 200_000, thread=thread)
        return examination_of(tmp_path / name, made)

    pooled, alone = examined("pooled", MAIN, OTHER), examined("alone", MAIN)
    assert [f.id for f in alone.findings] == ["host-python"] and pooled.findings == []
    assert [a.why[:24] for a in pooled.abstained if a.what == "ledger"] == ["steps ran on 2 threads: "]
    assert not [a for a in alone.abstained if a.what == "ledger"]
