"""The code that makes batches, the data set's or the loader's: by stacks of a program without workers."""

from __future__ import annotations

import polars as pl
import pytest

from fathom.diagnosis.signals import UnknownSignalError
from fathom.diagnosis.signals.lines import fetching

OUTER = "main (/home/me/train.py:9);next (/lib/torch/utils/data/dataloader.py:5)"
FETCH = f"{OUTER};fetch (/lib/torch/utils/data/_utils/fetch.py:52)"


def rows(*given: tuple[str, str, str, int]) -> pl.DataFrame:
    flat = [item[:3] for item in given for _ in range(item[3])]
    return pl.DataFrame(flat, schema=["function", "source", "stack"], orient="row")


def own(function: str, line: int, count: int) -> tuple[str, str, str, int]:
    source = f"/home/me/data.py:{line}"
    return function, source, f"{FETCH};{function} ({source})", count


LIBRARY = ("main", "/home/me/train.py:9", f"{FETCH};getitem (/lib/torch/utils/data/dataset.py:211)", 4)


def test_the_line_is_of_the_data_sets_longest_function():
    result = fetching(rows(LIBRARY, own("decode", 3, 3), own("decode", 4, 5), own("crop", 8, 4)))
    assert (result.source, result.share) == ("/home/me/data.py:4", pytest.approx(12 / 16))


def test_code_of_the_loader_alone_has_no_line_of_a_data_set():
    result = fetching(rows(LIBRARY, LIBRARY))
    assert (result.source, result.share) == (None, 0.0)


def test_time_outside_the_loader_does_not_count():
    elsewhere = ("main", "/home/me/train.py:12", "main (/home/me/train.py:12)", 30)
    with pytest.raises(UnknownSignalError):
        fetching(rows(elsewhere))


def test_few_samples_show_a_line_but_no_share():
    result = fetching(rows((*LIBRARY[:3], 1), own("decode", 3, 2)))
    assert (result.source, result.share) == ("/home/me/data.py:3", None)
