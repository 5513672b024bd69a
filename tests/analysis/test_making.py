"""Stacks in which the loop's own thread makes batches, and stacks that look alike."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fathom.analysis.clean import Profiled, clean_entries
from fathom.analysis.intervals import spans
from fathom.analysis.making import Making, makers
from fathom.analysis.results import LedgerRow
from fathom.analysis.sampled import OTHER_LINES, Samples, Setting, label, makes_batches, samples_of

SITE = "/v/lib/python3.11/site-packages"
SHORT = {"torch:": f"{SITE}/torch/", "site:": f"{SITE}/", "std:": "/usr/lib/python3.11/"}
MODEL = "main (/p/a.py:9);Module._call_impl (torch:nn/modules/module.py:1);Net.forward (/p/net.py:3)"
BACKWARD = "main (/p/a.py:10);Tensor.backward (torch:_tensor.py:7)"
STEP = "main (/p/a.py:11);AdamW.step (torch:optim/adamw.py:4)"
BATCH = "batches (/p/data.py:5)"
LOOP = "main (/p/a.py:8)"


def full(stack: str) -> str:
    for short, path in SHORT.items():
        stack = stack.replace(f"({short}", f"({path}")
    return f"<module> (/p/a.py:20);{stack}"


def table(*stacks: tuple[str, list[int]]) -> pl.DataFrame:
    """Stacks with the positions of their iterators; the outermost frame has the position 0."""
    every = [(MODEL, []), (BACKWARD, []), (STEP, []), *stacks]
    rows = [(full(text), iterators) for text, iterators in every]
    return pl.DataFrame(rows, schema={"stack": pl.String, "iterators": pl.List(pl.Int16)}, orient="row")


def made(*stacks: tuple[str, list[int]]) -> list[Making]:
    return list(makers(table(*stacks)).values())


def test_a_generator_beneath_the_loop_makes_batches():
    inner = f"{LOOP};{BATCH};median (site:numpy/lib.py:3)"
    assert made((inner, [2])) == [Making("batches (data.py:5)", "/p/data.py:5")]


def test_wrappers_are_passed_through():
    stack = f"{LOOP};tqdm.__iter__ (site:tqdm/std.py:1181);{BATCH}"
    assert made((stack, [2, 3])) == [Making("batches (data.py:5)", "/p/data.py:5")]
    own = f"{LOOP};laps (/p/watch.py:2);{BATCH}"
    assert made((own, [2, 3])) == [Making("batches (data.py:5)", "/p/data.py:5")]


def test_a_generator_with_work_beside_that_of_another_keeps_its_name():
    nested, own = (f"{LOOP};{BATCH};rows (/p/data.py:2)", [2, 3]), (f"{LOOP};{BATCH}", [2])
    assert {each.detail for each in made(nested, own)} == {"batches (data.py:5)"}


def test_a_data_library_is_found_at_the_line_of_the_loop():
    stack = f"{LOOP};IterableDataset.__iter__ (site:datasets/iterable_dataset.py:2000)"
    expected = Making("IterableDataset.__iter__ (iterable_dataset.py:2000)", "/p/a.py:8")
    assert made((stack, [2])) == [expected]


def test_a_method_of_the_program_may_lie_between():
    stack = f"{LOOP};Trainer.batch (/p/a.py:3);{BATCH}"
    assert made((stack, [3])) == [Making("batches (data.py:5)", "/p/data.py:5")]


@pytest.mark.parametrize(
    ("stack", "iterators"),
    [
        (f"{LOOP};helper (/p/a.py:3)", []),  # no iterator
        (f"{LOOP};<genexpr> (/p/a.py:8)", []),  # made and used up within the step
        (f"{LOOP};Module.parameters (torch:nn/modules/module.py:2700)", [2]),  # a generator of torch
        (f"{LOOP};_GeneratorContextManager.__enter__ (std:contextlib.py:137);timed (/p/a.py:3)", [3]),
        (f"{LOOP};_BaseDataLoaderIter.__next__ (torch:utils/data/dataloader.py:7);{BATCH}", [2, 3]),
        (f"{MODEL};layers (/p/net.py:9)", [4]),  # within the model
    ],
)
def test_other_stacks_make_no_batches(stack, iterators):
    assert made((stack, iterators)) == []


def test_a_thread_that_runs_no_model_makes_no_batches_for_it():
    rows = pl.DataFrame(
        [(full(f"{LOOP};{BATCH}"), [2])],
        schema={"stack": pl.String, "iterators": pl.List(pl.Int16)},
        orient="row",
    )
    assert makers(rows) == {}


def test_a_generator_that_runs_the_model_is_part_of_the_loop():
    run = "main (/p/a.py:8);run (/p/a.py:2)"
    rows = table((f"{run};Module._call_impl (torch:nn/modules/module.py:1)", [2]), (run, [2]))
    only = rows.filter(pl.col("stack").str.contains("run ", literal=True))
    assert makers(only) == {}
    nested = pl.concat([only, table((f"{run};{BATCH}", [2, 3])).tail(1)])
    assert [each.detail for each in makers(nested).values()] == ["batches (data.py:5)"]


def test_recordings_without_the_column_have_none():
    stacks = table((f"{LOOP};{BATCH}", [2])).with_columns(iterators=pl.lit(None, pl.List(pl.Int16)))
    assert makers(stacks) == {}


MADE = Making("batches (data.py:5)", "/p/data.py:5")
QUEUE = f"{LOOP};{BATCH};Queue.get (std:queue.py:171);Condition.wait (std:threading.py:320)"
PLACE = "f (p.py:1)"


@pytest.mark.parametrize(
    ("running", "call", "stack", "training", "expected"),
    [
        (True, None, BATCH, False, ("input", MADE.detail)),
        (False, "clock_nanosleep", BATCH, True, ("input", MADE.detail)),
        (False, "pread64", BATCH, False, ("input", MADE.detail)),
        (True, None, f"{BATCH};_timed (/v/fathom/probe/hooks/reading.py:100)", True, ("input", MADE.detail)),
        (True, None, f"{BATCH};wait (/v/fathom/probe/reporter.py:9)", True, ("profiling overhead", "")),
        (False, "recvfrom", BATCH, False, ("blocked", f"recvfrom in {PLACE}")),
        (False, "futex", QUEUE, True, ("input", "queue.get")),
        (False, "futex", QUEUE, False, ("no work", PLACE)),
    ],
)
def test_labels_of_samples_that_make_batches(running, call, stack, training, expected):
    sampled = label(running, call, "f", "/p/p.py:1", full(stack), setting=Setting(training), making=MADE)
    assert sampled == expected


def test_ops_between_two_samples_of_an_iterator_are_input():
    stacks = pl.DataFrame(
        {"time_ns": [0, 1_000_000, 2_000_000, 3_000_000], "thread": [1] * 4, "running": [True] * 4}
        | {"call": [None] * 4, "function": ["f"] * 4, "source": ["/p/p.py:1"] * 4}
        | {"stack": ["a", "a", "a", "b"]},
        schema_overrides={"call": pl.String},
    )
    some = samples_of(stacks, Setting(True), {"a": MADE}, np.array([1_500_000]))
    assert some is not None
    ops = spans([100_000, 1_200_000, 2_400_000], [200_000, 1_700_000, 2_500_000])
    split = dict(some.split(ops, "dispatching", lines=False))
    assert split["input", MADE.detail].length == 100_000  # not across the bound of a step
    assert split["dispatching", ""].length == 600_000


def test_python_around_samples_in_an_iterator_is_input():
    labels = [("input", MADE.detail), ("python", PLACE)]
    between = [(labels[0], spans([1_000_000], [2_000_000]))]
    some = Samples(1, np.array([1_000_000, 2_000_000, 3_000_000]), np.array([0, 0, 1]), labels, between)
    gaps = spans([900_000, 1_400_000, 2_900_000], [1_100_000, 1_500_000, 3_100_000])
    split = {key: part.length for key, part in some.split(gaps, "python")}
    assert split == {("input", MADE.detail): 300_000, ("python", PLACE): 200_000}


def test_details_of_hooks_are_told_from_lines():
    lines = [("input", MADE.detail), ("input", OTHER_LINES)]
    assert all(makes_batches(each) for each in lines)
    others = [("input", ""), ("input", "queue.get"), ("python", PLACE)]
    assert not any(makes_batches(each) for each in others)


def test_waits_that_hooks_measured_do_not_replace_the_time_in_an_iterator():
    ms = {("ops", "aten::mm"): 4.0, ("idle: input", MADE.detail): 10.0, ("idle: input", ""): 2.0}
    rows = [LedgerRow(entry, detail, value) for (entry, detail), value in ms.items()]
    profiled = Profiled(rows, ms, {})
    clean = {(r.entry, r.detail): r.ms for r in clean_entries(profiled, {"input": 3.0}, 17.0)}
    assert clean["idle: input", MADE.detail] == pytest.approx(10.0)
    assert clean["idle: input", ""] == pytest.approx(3.0)
    nothing = clean_entries(profiled, {"input": 0.0}, 14.0)
    assert {(r.entry, r.detail): r.ms for r in nothing}["idle: input", MADE.detail] == pytest.approx(10.0)
