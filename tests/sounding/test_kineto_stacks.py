"""Python frames of a trace become stacks in the pauses between ops and calls."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fathom.sounding.events.nesting import nest
from fathom.sounding.kineto import read_trace
from fathom.sounding.kineto.stacks import LEAST_NS, frame_stacks
from tests.support.kineto_samples import op, write


def frame(name: str, start: float, end: float) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": "python_function",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": end - start,
        "args": {},
    }


def test_a_pause_has_the_innermost_frame_of_the_program(tmp_path: Path) -> None:
    events = [
        frame("train.py(3): step", 0, 1000),
        frame("train.py(20): log", 300, 700),
        frame("/usr/lib/python3.11/json/encoder.py(1): encode", 400, 500),
        {**op("aten::mm", 100, 50), "pid": 1, "tid": 1},
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    rows = trace.stacks.sort("time_ns").select("time_ns", "function", "source")
    base = trace.stacks["time_ns"].min()
    assert [(time - base, *named) for time, *named in rows.iter_rows()] == [
        (0, "step", "train.py:3"),
        (99_999, "step", "train.py:3"),
        (150_000, "step", "train.py:3"),
        (299_999, "step", "train.py:3"),
        (300_000, "log", "train.py:20"),
        (699_999, "log", "train.py:20"),
        (700_000, "step", "train.py:3"),
        (999_999, "step", "train.py:3"),
    ]
    assert trace.facts == {"python_calls": 3}


@pytest.mark.parametrize("seed", range(8))
def test_stacks_agree_with_a_count_of_every_instant(seed: int) -> None:
    chance = random.Random(seed)
    frames, busy = nested(chance, 40), without_first(nested(chance, 15))
    names = pl.Series([f"f{i}.py({i}): f{i}" for i in range(40)])
    kinds = np.ones(40, np.int64)  # user frames
    callers = nest(frames["thread"], frames["start"], frames["end"], kinds).frame
    rows = frame_stacks(frames, callers, names, [busy]).sort("time_ns")
    expected = brute_force(frames, busy)
    for time, function in rows.select("time_ns", "function").iter_rows():
        assert expected[time] == int(function[1:])
    seen = set(rows["time_ns"].to_list())
    assert seen and all(time in seen for time in starts_of_long_runs(expected))


def nested(chance: random.Random, count: int) -> dict[str, np.ndarray]:
    """Intervals that nest or lie apart, as calls of functions do, in units of LEAST_NS."""
    spans = [(0, 400)]
    while len(spans) < count:
        low, high = chance.choice(spans)
        if high - low > 2:
            start = chance.randrange(low, high - 1)
            candidate = (start, chance.randrange(start + 1, high + 1))
            if all(_nests(candidate, other) for other in spans) and candidate not in spans:
                spans.append(candidate)
    times = np.array(spans) * LEAST_NS
    zeros = np.zeros(count, np.int64)
    return {"thread": zeros, "start": times[:, 0], "end": times[:, 1], "name": np.arange(count)}


def _nests(span: tuple[int, int], other: tuple[int, int]) -> bool:
    disjoint = span[1] <= other[0] or other[1] <= span[0]
    return (
        disjoint
        or (span[0] >= other[0] and span[1] <= other[1])
        or (other[0] >= span[0] and other[1] <= span[1])
    )


def brute_force(frames: dict[str, np.ndarray], busy: dict[str, np.ndarray]) -> dict[int, int]:
    """The innermost frame of every instant at the edges of a unit without work, -1 while something works."""
    innermost = {}
    for unit in range(400):
        for time in (unit * LEAST_NS, (unit + 1) * LEAST_NS - 1):
            works = ((busy["start"] <= time) & (time < busy["end"])).any()
            inside = np.flatnonzero((frames["start"] <= time) & (time < frames["end"]))
            length = (frames["end"] - frames["start"])[inside]
            innermost[time] = -1 if works else int(inside[np.argmin(length)])
    return innermost


def starts_of_long_runs(expected: dict[int, int]) -> list[int]:
    times = sorted(expected)
    pairs = zip([-1, *times], times, strict=False)
    return [now for before, now in pairs if expected[now] >= 0 and expected.get(before) != expected[now]]


def without_first(spans: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The spans without the one around all others."""
    return {name: array[1:] for name, array in spans.items()}
