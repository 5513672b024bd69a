"""The trace that the import's benchmark grows holds the same work over and over, and nothing damaged."""

from __future__ import annotations

import polars as pl

from benchmarks.cost.import_speed import repeated
from fathom.sounding.kineto import read_trace
from tests.support.kineto_samples import KEPT, small, write


def test_a_repeated_trace_holds_the_work_as_often(tmp_path):
    path = KEPT / "compiled.json.gz"
    once, thrice = read_trace(path), read_trace(repeated(path, 3, tmp_path / "t.json.gz"))
    assert thrice.problems == []
    for table, frame in thrice.tables.items():
        assert len(frame) == 3 * len(once.tables[table])
    kernels = thrice.tables["kernels"]
    assert kernels["correlation"].n_unique() == 3 * once.tables["kernels"]["correlation"].n_unique()
    span = pl.col("end_ns") - pl.col("start_ns")
    assert kernels.select(span.sum()).item() == 3 * once.tables["kernels"].select(span.sum()).item()


def test_steps_go_on_where_they_ended(tmp_path):
    path = write(tmp_path / "one.json.gz", small())
    steps = read_trace(repeated(path, 2, tmp_path / "two.json.gz")).steps
    assert len(steps) == 4 and steps["mark_ns"].is_sorted()
