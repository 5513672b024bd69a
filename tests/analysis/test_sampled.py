"""Sampled stacks: they split sets of time by cause and line, and the ledger shows few lines."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import polars as pl
import pytest

from fathom.analysis.intervals import Spans, intersect, merge, spans, subtract
from fathom.analysis.sampled import (
    MOST_LINES,
    OTHER_LINES,
    REACH_NS,
    Samples,
    Setting,
    few_lines,
    label,
    rare_lines,
    samples_of,
)

TORCH = "/v/lib/python3.11/site-packages/torch"
LABELS = [
    ("python", "f (p.py:1)"),
    ("python", "g (p.py:2)"),
    ("blocked", "read in f (p.py:1)"),
    ("no work", ""),
]


def random_samples(generator: random.Random, until: int) -> Samples:
    times = sorted(generator.sample(range(until), generator.randrange(1, 40)))
    codes = [generator.randrange(len(LABELS)) for _ in times]
    return Samples(1, np.array(times), np.array(codes), LABELS)


def random_set(generator: random.Random, until: int) -> Spans:
    cuts = sorted(generator.sample(range(until), 2 * generator.randrange(1, 20)))
    return spans(cuts[::2], cuts[1::2])


@pytest.mark.parametrize("seed", range(50))
def test_every_instant_goes_to_the_nearest_sample_inside_the_set(seed: int) -> None:
    generator = random.Random(seed)
    until = generator.choice([400, 3000])
    samples, values = random_samples(generator, until), random_set(generator, until)
    split = samples.split(values, "python")
    inside = [
        (int(t), samples.labels[c])
        for t, c in zip(samples.times, samples.label, strict=True)
        if any(s <= t < e for s, e in zip(*values, strict=True))
    ]
    owner: dict[int, tuple[str, str]] = {}
    for key, parts in split:
        for start, end in zip(*parts, strict=True):
            for instant in range(start, end):
                assert instant not in owner
                owner[instant] = key
    covered = {i for s, e in zip(*values, strict=True) for i in range(s, e)}
    assert set(owner) == covered
    for instant, key in owner.items():
        distance = min((abs(t - instant) for t, _ in inside), default=None)
        nearest = {item for t, item in inside if abs(t - instant) == distance} or {("python", "")}
        assert key in nearest


@pytest.mark.parametrize(
    ("call", "file", "cause"),
    [
        ("futex", "/p/app.py:5", "python"),  # threads of an op wait for each other
        ("page fault", "/p/app.py:5", "python"),
        ("futex", "/usr/lib/python3.11/threading.py:327", "blocked"),  # Python waits for a lock
        ("clock_nanosleep", "/p/app.py:5", "blocked"),
    ],
)
def test_locks_that_ops_may_take_are_no_waits_of_the_program(call: str, file: str, cause: str) -> None:
    sample = False, call, "f", "/p/app.py:5", f"<module> (/p/app.py:9);f ({file})"
    assert label(*sample, setting=Setting(in_ops=True))[0] == cause
    assert label(*sample, setting=Setting())[0] == "blocked"


def test_time_far_from_every_sample_stays_without_a_line() -> None:
    samples = Samples(1, np.array([0]), np.array([0]), LABELS)
    split = dict(samples.split(spans([0], [5 * REACH_NS]), "python"))
    assert split["python", "f (p.py:1)"].length == REACH_NS
    assert split["python", ""].length == 4 * REACH_NS


@pytest.mark.parametrize("seed", range(20))
def test_samples_beside_a_collective_label_no_time_without_one(seed: int) -> None:
    generator = random.Random(seed)
    samples, values = random_samples(generator, 400), random_set(generator, 400)
    moving = random_set(generator, 400)
    beside = msgspec.structs.replace(samples, communicating=moving)
    split = dict(beside.split(values, "python"))
    parts = intersect(values, moving), subtract(values, moving)
    alone = [samples.split(part, "python") for part in parts]
    for key in {key for labelled in (split.items(), *alone) for key, _ in labelled}:
        sets = [part for labelled in alone for own, part in labelled if own == key]
        assert subtract(split[key], merge(*sets)).length == subtract(merge(*sets), split[key]).length == 0


def test_python_before_a_collective_is_no_wait_for_peers() -> None:
    waits = Samples(1, np.array([70]), np.array([0]), [("waiting for peers", "")])
    waits = msgspec.structs.replace(waits, communicating=spans([60], [100]))
    split = dict(waits.split(spans([0, 60], [40, 100]), "python"))
    assert [part.length for part in split.values()] == [40, 40]
    assert set(split) == {("python", ""), ("waiting for peers", "")}


def test_a_sample_in_a_hook_of_fathom_says_little_of_the_time_around_it() -> None:
    ms, hook = 1_000_000, ("profiling overhead", "")
    samples = Samples(1, ms * np.array([1, 5, 7, 8]), np.array([1, 0, 1, 1]), [LABELS[0], hook])
    split = {
        key: [tuple(map(int, part)) for part in zip(*parts, strict=True)]
        for key, parts in samples.split(spans([0], [10 * ms]), "python")
    }
    brief = ms // 20
    hooks = [(ms - brief, ms + brief), (7 * ms - brief, 8 * ms + brief)]  # between neighbours it went on
    assert split == {
        hook: hooks,
        LABELS[0]: [(0, hooks[0][0]), (hooks[0][1], hooks[1][0]), (hooks[1][1], 10 * ms)],
    }


def test_dispatching_keeps_its_cause_whatever_a_sample_says() -> None:
    samples = Samples(1, np.array([10, 50]), np.array([0, 2]), LABELS)
    split = dict(samples.split(spans([0], [100]), "dispatching"))
    assert {key: item.length for key, item in split.items()} == {
        ("dispatching", "f (p.py:1)"): 30,
        ("dispatching", ""): 70,
    }


def test_a_hook_of_fathom_while_dispatching_is_dispatching() -> None:
    samples = Samples(1, np.array([500_000]), np.array([0]), [("profiling overhead", "")])
    split = samples.split(spans([0], [1_000_000]), "dispatching")
    assert {key: item.length for key, item in split} == {("dispatching", ""): 1_000_000}


def stacked(*frames: str) -> str:
    """A stack, outermost frame first; `std:` is the standard library, `torch:` torch."""
    places = [
        frame.replace("std:", "/usr/lib/python3.11/").replace("torch:", f"{TORCH}/") for frame in frames
    ]
    return ";".join(["<module> (/p/a.py:1)", *places])


PLACE = "train (train.py:7)"
WAITS = "Condition.wait (std:threading.py:320)"
QUEUE = stacked("Queue.get (std:queue.py:171)", WAITS)
BACKWARD = stacked("_engine_run_backward (torch:autograd/graph.py:829)")
LOOP = stacked("Server.run (/v/site-packages/uvicorn/server.py:9)", "Runner.run (std:asyncio/runners.py:7)")
CASES = [
    (True, None, stacked(), Setting(), ("python", PLACE)),
    (None, None, stacked(), Setting(), ("python", PLACE)),
    (False, "clock_nanosleep", stacked(), Setting(), ("blocked", f"clock_nanosleep in {PLACE}")),
    (False, "epoll_wait", LOOP, Setting(), ("no work", PLACE)),
    (False, "accept4", stacked(), Setting(), ("no work", PLACE)),
    (False, "poll", stacked("select (std:selectors.py:4)"), Setting(), ("no work", PLACE)),
    (
        False,
        "poll",
        stacked("wait (std:multiprocessing/connection.py:9)", "select (std:selectors.py:4)"),
        Setting(),
        ("blocked", f"poll in {PLACE}"),
    ),
    (
        False,
        "poll",
        stacked("get (/v/site-packages/urllib3/w.py:9)"),
        Setting(),
        ("blocked", f"poll in {PLACE}"),
    ),
    (False, "futex", QUEUE, Setting(), ("no work", PLACE)),
    (False, "futex", stacked("_worker (std:concurrent/futures/thread.py:90)"), Setting(), ("no work", PLACE)),
    (False, "futex", QUEUE, Setting(training=True), ("input", "queue.get")),
    (False, "poll", stacked("__next__ (torch:utils/data/dataloader.py:7)", WAITS), Setting(), ("input", "")),
    (False, "futex", stacked("wait (torch:distributed/c10d.py:28)"), Setting(), ("waiting for peers", "")),
    (False, "futex", BACKWARD, Setting(several_ranks=True), ("waiting for peers", "")),
    (False, "futex", BACKWARD, Setting(engine=True), ("python", PLACE)),
    # Without a device, the calling thread runs autograd's engine and its ops, until a function is in Python.
    (True, None, BACKWARD, Setting(), ("dispatching", PLACE)),
    (True, None, f"{BACKWARD};backward (/p/loss.py:3)", Setting(), ("python", PLACE)),
    (
        True,
        None,
        stacked("Session.flush (/x/fathom/probe/session.py:9)", "dumps (std:json/__init__.py:1)"),
        Setting(),
        ("profiling overhead", ""),
    ),
    (
        True,
        None,
        stacked("wrapper (/x/fathom/probe/hooks/waits.py:9)", "save (torch:serialization.py:1)"),
        Setting(),
        ("python", PLACE),
    ),
]


@pytest.mark.parametrize(("running", "call", "stack", "setting", "expected"), CASES)
def test_a_sample_names_its_cause(
    running: bool | None, call: str | None, stack: str, setting: Setting, expected: tuple[str, str]
) -> None:
    assert label(running, call, "train", "/p/train.py:7", stack, setting=setting) == expected


def test_a_wait_in_native_code_beside_a_collective_is_for_peers() -> None:
    waits = {
        10: ("futex", "/p/train.py:7"),
        20: ("futex", "/p/train.py:7"),
        30: ("futex", "/usr/lib/python3.11/threading.py:320"),
        40: ("write", "/p/train.py:7"),
    }
    rows = [(t, 7, False, call, "f", "/p/train.py:7", f"f ({file})") for t, (call, file) in waits.items()]
    names = ["time_ns", "thread", "running", "call", "function", "source", "stack"]
    stacks = pl.DataFrame(rows, schema=names, orient="row")
    result = samples_of(stacks, Setting(True, several_ranks=True), communicating=spans([15], [50]))
    assert result is not None
    assert [result.labels[code] for code in result.label] == [
        ("blocked", "futex in f (train.py:7)"),
        ("waiting for peers", ""),
        ("blocked", "futex in f (train.py:7)"),
        ("blocked", "write in f (train.py:7)"),
    ]


def test_samples_are_of_the_thread_that_has_most() -> None:
    rows = [(t, 7, True, None, "f", "/p/a.py:1", "f (/p/a.py:1)") for t in (30, 10, 20)]
    rows.append((15, 8, True, None, "g", "/p/a.py:9", "g (/p/a.py:9)"))
    names = ["time_ns", "thread", "running", "call", "function", "source", "stack"]
    result = samples_of(pl.DataFrame(rows, schema=names, orient="row"), Setting())
    assert result is not None
    assert (result.thread, result.times.tolist(), result.labels) == (
        7,
        [10, 20, 30],
        [("python", "f (a.py:1)")],
    )
    assert samples_of(pl.DataFrame(schema=names), Setting()) is None


def test_small_lines_become_one_row_and_nothing_is_lost() -> None:
    generator = random.Random(3)
    rows: list[tuple[int, str, str, int, int | None]] = [
        (w, "idle: python", f"f (p.py:{i})", generator.randrange(1, 10**6) >> i, None)
        for w in range(4)
        for i in range(20)
    ]
    rows += [(w, "compute", f"k{i}", 50, 2) for w in range(4) for i in range(20)] + [
        (0, "idle: python", "", 5, None)
    ]
    schema = {"window": pl.Int64, "entry": pl.String, "detail": pl.String, "ns": pl.Int64, "count": pl.Int64}
    before = pl.DataFrame(rows, schema=schema, orient="row")
    after = few_lines(before)
    for columns in (["window", "entry"], ["entry"]):
        sums = [item.group_by(columns).agg(pl.col("ns").sum()).sort(columns) for item in (before, after)]
        assert sums[0].equals(sums[1])
    lines = after.filter(entry="idle: python")["detail"].unique().to_list()
    assert len(lines) <= MOST_LINES + 2
    assert {OTHER_LINES, "", "f (p.py:0)"} <= set(lines)
    assert after.filter(entry="compute").equals(before.filter(entry="compute"))


def test_lines_with_one_or_two_samples_are_not_shown() -> None:
    rows = [(t, 7, True, None, "f", "/p/a.py:1", "f (/p/a.py:1)") for t in (10, 20, 30)]
    rows += [(t, 7, True, None, "g", "/p/a.py:9", "g (/p/a.py:9)") for t in (40, 50)]
    rows.append((60, 7, False, "read", "h", "/p/a.py:20", "h (/p/a.py:20)"))
    names = ["time_ns", "thread", "running", "call", "function", "source", "stack"]
    stacks = pl.DataFrame(rows, schema=names, orient="row")
    result = samples_of(stacks, Setting(), rare=rare_lines(stacks))
    assert result is not None
    assert result.labels == [("python", "f (a.py:1)"), ("python", ""), ("blocked", "")]
