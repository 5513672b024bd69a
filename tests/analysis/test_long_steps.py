"""Rare long steps: how often they come, what they cost, and the call that takes their time."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fathom
from fathom.analysis.long_steps import long_steps_of
from fathom.sounding.schema import conform, empty
from faults import kept
from faults.examined import KEPT

MS = 1_000_000
PROGRAM, LIBRARY = "/home/me/train.py", "/usr/lib/python3.12/site-packages/torch/nn/modules/module.py"
LOOP, CALL = f"<module> ({PROGRAM}:40)", f"Module._call_impl ({LIBRARY}:1789)"
EVALUATE, BACKWARD = f"<module> ({PROGRAM}:41);evaluate ({PROGRAM}:8)", f"<module> ({PROGRAM}:44)"


class Recording:
    """Clean steps of given lengths, sampled every `period` in the stack that a step is in by then."""

    def __init__(self, lengths, stack_of, period=5 * MS, seed=0):
        marks, self.rows, now = [], [], 0
        draw, due = random.Random(seed), 0.0
        for step, length in enumerate(lengths):
            marks.append((step, now, now + length))
            while due < now + length:
                if due >= now:
                    self.rows.append((int(due), stack_of(step, (due - now) / length, draw)))
                due += period * draw.uniform(0.75, 1.25)
            now += length
        self.steps = conform("steps", pl.DataFrame(marks, ["step", "mark_ns", "end_ns"], orient="row"))
        self.steps = self.steps.with_columns(kind=pl.lit("train"), phase=pl.lit("clean"), burst=1)

    def table(self, name, rank):
        if name == "summaries":
            return empty(name).lazy()
        assert name == "stacks"
        rows = []
        for ns, stack in self.rows:
            own = [frame for frame in stack.split(";") if PROGRAM in frame][-1]
            function, source = own.rstrip(")").split(" (")
            rows.append((ns, function, source, stack, "clean"))
        return pl.LazyFrame(rows, ["time_ns", "function", "source", "stack", "phase"], orient="row")

    def outliers(self):
        return long_steps_of(self, 0, self.steps, "train")


def usual(step, share, draw):
    return f"{LOOP};{CALL}" if share < 0.5 else BACKWARD


def evaluating(every):
    """Steps of 10 ms; `every` so many evaluate before it for 160 ms, in lines all over the model."""

    def stack_of(step, share, draw):
        if step % every or share > 160 / 170:
            return usual(step, draw.random(), draw)
        return f"{EVALUATE};{CALL};forward ({PROGRAM}:{draw.randrange(20, 30)})"

    return Recording([10 * MS + 160 * MS * (step % every == 0) for step in range(600)], stack_of)


def test_evaluation_every_so_many_steps_is_named():
    result = evaluating(50).outliers()
    assert (result.n, result.of, result.every) == (12, 600, 50)
    assert result.usual_ms == 10 and result.ms == 170
    assert result.share == pytest.approx(12 * 160 / (600 * 10 + 12 * 160))
    assert [(place.function, place.source) for place in result.places] == [("evaluate", f"{PROGRAM}:8")]
    assert result.places[0].share == pytest.approx(1.0, abs=0.1)


def test_the_model_that_an_evaluation_calls_is_not_blamed():
    def stack_of(step, share, draw):
        model = f"{CALL};forward ({PROGRAM}:25)"
        return f"{EVALUATE};{model}" if not step % 50 and share < 0.9 else f"{LOOP};{model}"

    result = Recording([10 * MS + 160 * MS * (step % 50 == 0) for step in range(600)], stack_of).outliers()
    assert [(place.function, place.source) for place in result.places] == [("evaluate", f"{PROGRAM}:8")]


def test_two_causes_in_the_loop_are_named_with_their_shares():
    def stack_of(step, share, draw):
        if step % 30:
            return usual(step, share, draw)
        return EVALUATE if share < 0.7 else f"<module> ({PROGRAM}:50);save ({LIBRARY}:900)"

    result = Recording([10 * MS + 190 * MS * (step % 30 == 0) for step in range(300)], stack_of).outliers()
    assert [place.source for place in result.places] == [f"{PROGRAM}:8", f"{PROGRAM}:50"]
    assert [place.share for place in result.places] == pytest.approx([0.7, 0.3], abs=0.15)


def test_a_line_whose_calls_take_the_time_is_named_once_and_shares_add_up_to_the_extra_time():
    line, calls = f"<module> ({PROGRAM}:8)", [f"first ({LIBRARY}:1)", f"second ({LIBRARY}:2)"]

    def stack_of(step, share, draw):
        if step % 30:  # a part of usual steps is missing in long ones
            return f"{LOOP};{CALL}" if draw.random() < 0.9 else f"{line};{draw.choice(calls)}"
        return f"{line};{calls[share < 0.5]}" if share < 0.7 else f"<module> ({PROGRAM}:50)"

    result = Recording([10 * MS + 190 * MS * (step % 30 == 0) for step in range(300)], stack_of).outliers()
    assert [place.source for place in result.places] == [f"{PROGRAM}:8", f"{PROGRAM}:50"]
    assert sum(place.share for place in result.places) <= 1


def test_a_loop_in_a_function_that_only_long_steps_run_is_named_with_its_longest_line():
    def stack_of(step, share, draw):
        if step % 50 or share > 0.9:
            return usual(step, draw.random(), draw)
        return f"<module> ({PROGRAM}:41);sums ({PROGRAM}:{draw.choice([6, 7, 7, 8, 9])})"

    lengths = [10 * MS + 160 * MS * (step % 50 == 0) for step in range(600)]
    (place,) = Recording(lengths, stack_of).outliers().places
    assert (place.function, place.source) == ("sums", f"{PROGRAM}:7")
    assert place.share == pytest.approx(1.0, abs=0.1)


def test_usual_work_that_takes_longer_is_named_where_it_is():
    result = Recording([10 * MS + 90 * MS * (step % 13 == 5) for step in range(200)], usual).outliers()
    assert result.every == 13
    assert {place.source for place in result.places} == {f"{PROGRAM}:40", f"{PROGRAM}:44"}


def test_without_samples_no_place_is_named():
    recording = evaluating(50)
    recording.rows = []
    assert recording.outliers().n == 12 and recording.outliers().places == []


def test_irregular_ones_have_no_distance():
    lengths = [10 * MS + 100 * MS * (step in (31, 70, 155, 290)) for step in range(300)]
    result = Recording(lengths, usual).outliers()
    assert result.n == 4 and result.every is None


@given(st.lists(st.floats(0.6, 1.4), min_size=30, max_size=200))
def test_scatter_holds_no_long_steps(scatter):
    assert Recording([int(10 * MS * item) for item in scatter], usual).outliers() is None


@given(st.integers(2, 4))
def test_steps_that_are_not_rare_are_not_outliers(every):
    lengths = [10 * MS + 90 * MS * (step % every == 0) for step in range(100)]
    assert Recording(lengths, usual).outliers() is None


def test_long_steps_that_cost_little_are_not_named():
    assert Recording([10 * MS + 30 * MS * (step == 50) for step in range(100)], usual).outliers() is None


def test_few_steps_show_nothing():
    assert Recording([10 * MS] * 10 + [200 * MS], usual).outliers() is None


@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("two.pageable_and_checkpoint.faulty.2", [8]),  # saves every eighth step
        ("input.worker_restart.faulty.2", [12]),  # an epoch has twelve batches
        ("two.pageable_and_checkpoint.mended.2", []),
        ("tuned.graphed_training.mended.2", []),  # its marks say when work was launched
    ],
)
def test_kept_recordings(name, every, tmp_path):
    outliers = fathom.open(kept.take(KEPT, name, tmp_path)).examine().long_steps
    assert [steps.every for steps in outliers] == every
