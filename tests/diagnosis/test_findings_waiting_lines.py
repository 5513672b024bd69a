"""Where the host waits: the line that most sampled stacks within these waits name."""

from __future__ import annotations

import polars as pl

from fathom.diagnosis.signals.lines import line_in


def stacks(*rows: tuple[int, str, str | None], thread: int = 1) -> pl.DataFrame:
    columns = ["time_ns", "function", "source", "thread"]
    return pl.DataFrame([(*row, thread) for row in rows], schema=columns, orient="row")


def waits(*spans: tuple[int, int], thread: int = 1) -> pl.DataFrame:
    return pl.DataFrame(
        [(thread, *span) for span in spans], schema=["thread", "start_ns", "end_ns"], orient="row"
    )


SAMPLES = stacks(
    (5, "main", "train.py:9"),
    (12, "decode", "data.py:3"),
    (14, "decode", "data.py:4"),
    (16, "decode", "data.py:4"),
    (18, "main", "train.py:8"),
    (32, "main", "train.py:8"),
    (34, "main", "train.py:8"),
    (36, None, None),
)


def test_the_line_is_of_the_function_with_most_samples_within_waits():
    assert line_in(SAMPLES, waits((10, 20))) == "data.py:4"


def test_samples_outside_waits_and_of_other_threads_do_not_count():
    assert line_in(SAMPLES, waits((30, 40))) == "train.py:8"
    assert line_in(SAMPLES, waits((10, 40), thread=2)) is None


def test_a_single_sample_names_noline_in():
    assert line_in(SAMPLES, waits((4, 6))) is None
