"""Time of the program's functions in the mean step, from samples whose true shares are known."""

from __future__ import annotations

import random

import polars as pl
import pytest

from fathom.analysis.own_code import own_code_of
from fathom.sounding.schema import conform

MS = 1_000_000
PROGRAM, LIBRARY = "/home/me/train.py", "/usr/lib/python3.12/site-packages/torch/optim/adam.py"


class Recording:
    """Clean steps of given lengths, sampled at random; `line_at` returns function and line at a time."""

    def __init__(self, lengths, line_at, kinds=None, samples=2000, file=PROGRAM, thread=1):
        draw, marks, now = random.Random(3), [], 0
        for step, length in enumerate(lengths):
            marks.append((step, now, now + length, (kinds or ["train"] * len(lengths))[step], "clean", 1))
            now += length
        columns = ["step", "mark_ns", "end_ns", "kind", "phase", "burst"]
        self.steps = conform("steps", pl.DataFrame(marks, columns, orient="row"))
        self.rows = []
        for ns in sorted(draw.randrange(now) for _ in range(samples)):
            step = next(mark for mark in marks if mark[1] <= ns < mark[2])
            function, line = line_at(step[0], (ns - step[1]) / (step[2] - step[1]))
            self.rows.append((ns, thread, function, f"{file}:{line}", "clean"))

    def table(self, name, rank):
        assert name == "stacks"
        return pl.LazyFrame(self.rows, ["time_ns", "thread", "function", "source", "phase"], orient="row")

    def code(self, kind="train"):
        return own_code_of(self, 0, self.steps, kind, 10.0)


def shares(code):
    return {function.function: function.share for function in code.functions}


def test_a_function_has_the_share_of_its_time_and_its_lines():
    def line_at(step, share):
        return ("norm", 4 if share < 0.2 else 5) if share < 0.3 else ("main", 20)

    code = Recording([10 * MS] * 100, line_at).code()
    main, norm = code.functions
    assert (main.function, norm.function, norm.file, code.samples) == ("main", "norm", PROGRAM, 2000)
    assert norm.share == pytest.approx(0.3, abs=3 * norm.error) and 0.009 < norm.error < 0.012
    assert norm.ms == pytest.approx(10.0 * norm.share)
    assert [line.source for line in norm.lines] == [f"{PROGRAM}:4", f"{PROGRAM}:5"]
    assert sum(line.share for line in norm.lines) == pytest.approx(norm.share)


def test_a_function_that_only_rare_long_steps_run_has_its_part_of_the_mean_step():
    def line_at(step, share):
        return ("sums", 8) if step % 16 == 0 and share < 0.5 else ("main", 20)

    lengths = [10 * MS * (15 if step % 16 == 0 else 1) for step in range(160)]  # half of the time
    assert shares(Recording(lengths, line_at).code())["sums"] == pytest.approx(0.25, abs=0.03)


def test_steps_of_other_kinds_do_not_count():
    def line_at(step, share):
        return ("evaluate", 3) if step >= 50 else ("main", 20)

    recording = Recording([10 * MS] * 100, line_at, ["train"] * 50 + ["evaluation"] * 50)
    assert shares(recording.code()) == {"main": 1.0}
    assert shares(recording.code("evaluation")) == {"evaluate": 1.0}


def test_comprehensions_belong_to_the_function_that_holds_them():
    def line_at(step, share):
        return ("update.<locals>.<dictcomp>", 9) if share < 0.5 else ("update", 8)

    assert shares(Recording([10 * MS] * 100, line_at).code()) == {"update": 1.0}


def test_stacks_of_libraries_alone_count_for_no_function():
    assert Recording([10 * MS] * 100, lambda *_: ("step", 5), file=LIBRARY).code() is None


def test_few_samples_show_nothing():
    assert Recording([10 * MS] * 100, lambda *_: ("main", 5), samples=49).code() is None
    assert Recording([10 * MS] * 100, lambda *_: ("main", 5), samples=0).code() is None


def test_other_threads_do_not_count():
    recording = Recording([10 * MS] * 100, lambda *_: ("main", 5))
    recording.rows += [(ns + 1, 2, "watch", f"{PROGRAM}:90", "clean") for ns, *_ in recording.rows[:500]]
    assert shares(recording.code()) == {"main": 1.0}
