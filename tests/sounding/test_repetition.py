"""Steps of programs that mark none: the period that is found is the one that was there."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.sounding import import_traces
from fathom.sounding.kineto import read_trace
from fathom.sounding.repetition import find_anchors, find_period, steps_from_repetition
from tests.support.kineto_samples import call, kernel, op, write, write_text
from tests.support.paths import TRACES

MARKED = ("ns-resolution-rank0", "diff-control", "diff-test")


@pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")
@pytest.mark.parametrize("name", MARKED)
def test_real_traces_without_their_marks(tmp_path, name):
    path = TRACES / f"{name}.json.gz"
    marked = read_trace(path)
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["traceEvents"] = [
        event for event in document["traceEvents"] if not event["name"].startswith("ProfilerStep#")
    ]
    bare = read_trace(write_text(tmp_path / "t.json", json.dumps(document)))
    assert bare.steps.is_empty()
    result = steps_from_repetition(*(bare.tables[table] for table in ("kernels", "launches", "ops")))
    assert len(marked.steps) - 1 <= len(result) <= len(marked.steps)
    assert set(result["kind"]) == {"step"} and set(result["source"]) == {"repetition"}
    works = [launched(bare.tables, *span) for span in result.select("mark_ns", "end_ns").rows()]
    true = [launched(bare.tables, *span) for span in marked.steps.select("mark_ns", "end_ns").rows()[:-1]]
    assert np.median(works) == pytest.approx(np.median(true), rel=0.01)
    # the last true step has no end, and the first ones are still uneven
    assert mean_length(result[-3:]) == pytest.approx(mean_length(marked.steps[-4:-1]), rel=0.01)


def mean_length(steps: pl.DataFrame) -> float:
    return (steps["end_ns"] - steps["mark_ns"]).mean()


def launched(tables: dict[str, pl.DataFrame], begin: int, end: int) -> int:
    """How many pieces of device work were launched in [begin, end)."""
    calls = tables["launches"].filter(pl.col("start_ns").is_between(begin, end, closed="left"))
    return len(tables["kernels"].join(calls, on="correlation", how="semi"))


@st.composite
def programs(draw):
    """(period, sequence): a step that doesn't repeat within itself, with a prologue and an epilogue."""
    step = draw(st.lists(st.integers(0, 6), min_size=4, max_size=60))
    step.append(7)  # once a step
    count = draw(st.integers(5, 12))
    ends = st.lists(st.integers(0, 9), max_size=len(step) // 2)
    return len(step), draw(ends) + step * count + draw(ends)


@settings(max_examples=100)
@given(programs())
def test_the_period_is_found_between_prologue_and_epilogue(program):
    period, sequence = program
    codes = np.array(sequence)
    assert find_period(codes) == period
    anchors = find_anchors(codes)
    gaps = np.diff(anchors).tolist()
    assert gaps.count(period) >= max(2, len(gaps) - 2)  # its ends may look like a step's begin


@pytest.mark.parametrize("seed", range(5))
def test_steps_that_vary_slightly_still_repeat(seed):
    dice = random.Random(seed)
    step = [dice.randrange(30) for _ in range(200)]
    sequence = []
    for _ in range(10):
        varied = [code if dice.random() > 0.03 else dice.randrange(30) for code in step]
        if dice.random() < 0.5:
            del varied[dice.randrange(200)]
        sequence += varied
    period = find_period(np.array(sequence))
    assert period == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_what_does_not_repeat_has_no_period(seed):
    dice = random.Random(seed)
    assert find_period(np.array([dice.randrange(40) for _ in range(2000)])) is None
    assert find_period(np.arange(500)) is None


def test_two_rounds_are_no_repetition():
    assert len(find_anchors(np.array([*range(20), *range(20)]))) < 4


def test_an_import_without_steps_says_so(tmp_path):
    events = [
        event
        for n in range(30)
        for event in (call("cudaLaunchKernel", 10 * n, 2, n), kernel(f"k{n}", 10 * n + 3, 5, n))
    ]
    store = import_traces([write(tmp_path / "t.json", events)], tmp_path / "t.fathom")
    assert store.table("steps").collect().is_empty()
    assert [entry["what"] for entry in store.manifest.abstained] == ["steps"]


def test_a_program_without_a_device_repeats_in_its_ops(tmp_path):
    names = ["aten::linear", "aten::relu", "aten::linear", "aten::mse_loss", "aten::add_"]
    events = [op(names[n % 5], 100 * n, 80) for n in range(40)]
    store = import_traces([write(tmp_path / "t.json", events)], tmp_path / "t.fathom")
    steps = store.table("steps").collect()
    assert set(steps["end_ns"] - steps["mark_ns"]) == {500_000} and len(steps) >= 6
