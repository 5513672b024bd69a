"""Steps are split by their work. Time alone splits nothing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.kinds_by_work import KnownSteps, by_time, in_turn, split_by_work
from fathom.sounding.raw.steps import classified
from fathom.sounding.schema import conform

MS = 1_000_000


def program(
    lengths_ms: list[float], ran: list[list[str]], clean_ms: list[float]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps (clean ones, then a timeline) and the ops that those of the timeline ran."""
    ends = np.cumsum([*clean_ms, *lengths_ms]) * MS
    opens = np.concatenate([[0.0], ends[:-1]])
    phases = ["clean"] * len(clean_ms) + ["timeline"] * len(lengths_ms)
    steps = pl.DataFrame(
        {
            "step": range(len(ends)),
            "mark_ns": opens.astype(np.int64),
            "end_ns": ends.astype(np.int64),
            "phase": phases,
        }
    )
    rows = [
        {"what": what, "at": int(opens[len(clean_ms) + i]) + place}
        for i, names in enumerate(ran)
        for place, what in enumerate(names)
    ]
    work = pl.DataFrame(rows, schema={"what": pl.String, "at": pl.Int64})
    return conform("steps", steps).with_columns(kind=pl.lit("train")), work.with_columns(
        start_ns="at", end_ns=pl.col("at") + 1
    )


def kinds(steps: pl.DataFrame, phase: str) -> list[str]:
    return steps.filter(phase=phase)["kind"].to_list()


USUAL, MORE = ["mm"] * 20 + ["add"] * 20, ["mm"] * 20 + ["add"] * 20 + ["argmax"] * 30
durations = st.lists(st.floats(0.01, 1e4), min_size=4, max_size=30)


@given(durations, durations)
@settings(max_examples=40, deadline=None)
def test_steps_that_did_the_same_are_one_kind_however_long_they_took(a: list[float], b: list[float]) -> None:
    steps, work = program(a, [USUAL] * len(a), b)
    assert split_by_work(steps, work).equals(steps)


@given(st.lists(st.tuples(st.floats(9.0, 11.0), st.booleans()), min_size=4, max_size=30))
@settings(max_examples=40, deadline=None)
def test_other_work_in_the_same_time_is_no_kind(said: list[tuple[float, bool]]) -> None:
    steps, work = program([ms for ms, _ in said], [MORE if more else USUAL for _, more in said], [10.0] * 9)
    assert split_by_work(steps, work).equals(steps)


@given(st.lists(st.integers(1, 10_000), min_size=4, max_size=30, unique=True))
@settings(max_examples=40, deadline=None)
def test_shapes_that_change_from_step_to_step_are_no_kinds(shapes: list[int]) -> None:
    ran = [[f"gemm {shape}x64"] * 30 + ["add"] * 3 for shape in shapes]
    steps, work = program([float(shape) for shape in shapes], ran, [10.0] * 9)
    assert split_by_work(steps, work).equals(steps)


@given(
    st.lists(st.booleans(), min_size=8, max_size=40),
    st.lists(st.booleans(), min_size=8, max_size=60),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_other_work_that_takes_longer_is_a_kind_in_the_timeline_and_in_the_clean_phase(
    which: list[bool], clean: list[bool], seed: int
) -> None:
    which, clean = ([*side, True, True, False, False] for side in (which, clean))
    random = np.random.default_rng(seed)
    lengths, bare = (
        [random.uniform(0.95, 1.05) * (30.0 if long else 10.0) / slower for long in side]
        for side, slower in ((which, 1.0), (clean, 1.2))
    )
    steps, work = program(lengths, [MORE if long else USUAL for long in which], bare)
    result = split_by_work(steps, work)
    usual = sum(ms for ms, long in zip(lengths, which, strict=True) if not long)
    mostly = sum(lengths) - usual > usual
    names = {mostly: "train", not mostly: "train+kind 2"}
    assert kinds(result, "timeline") == [names[long] for long in which]
    assert kinds(result, "clean") == [names[long] for long in clean]
    assert result.drop("kind").equals(steps.drop("kind"))


TIMELINE = KnownSteps(np.arange(100, 110), np.array([0] * 9 + [1]), np.array([10.0] * 9 + [30.0]))


def test_every_tenth_step_is_a_kind_though_all_scatter() -> None:
    random, numbers = np.random.default_rng(7), np.arange(100)
    turn = numbers % 10 == 9
    result = [
        by_time(np.where(turn, 30, 8) * random.uniform(0.8, 1.7, 100), numbers, TIMELINE) for _ in range(99)
    ]
    assert sum(item is not None for item in result) > 50
    assert all(item is None or (item == turn).all() for item in result)


@given(st.lists(st.booleans(), min_size=2, max_size=60))
@settings(max_examples=80, deadline=None)
def test_in_turn_is_what_is_every_nth_step(which: list[bool]) -> None:
    groups = np.array(which, np.int64)
    rarer = int(sum(which) < len(which) / 2) if sum(which) * 2 != len(which) else 0
    mine = [place for place, group in enumerate(groups) if group == rarer]
    every = [n for n in range(2, 60) if len(mine) > 2 and mine == list(range(mine[0] % n, len(which), n))]
    assert in_turn(np.arange(len(which)), groups) == bool(every)


@pytest.mark.parametrize("scatter", [0.05, 0.2, 0.4, 0.8])
def test_one_noisy_population_is_seldom_cut_in_two(scatter: float) -> None:
    random = np.random.default_rng(7)
    cut = [
        by_time(random.lognormal(2.3, scatter, 60), np.arange(60), TIMELINE) is not None for _ in range(500)
    ]
    assert np.mean(cut) <= 0.05


def test_a_lone_slow_step_is_no_kind_of_the_clean_phase() -> None:
    times = np.array([10.0] * 20 + [30.0])
    assert by_time(times, np.arange(21), TIMELINE) is None
    result = by_time(np.append(times, 29.0), np.arange(22), TIMELINE)
    assert result is not None and result.tolist() == [0] * 20 + [1, 1]


@given(st.lists(st.sampled_from(["", "mm", "[]", "attention"]), max_size=6), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_few_or_odd_records_split_nothing(names: list[str], steps: int) -> None:
    table, work = program([1.0] * steps, [names] * steps, [])
    assert split_by_work(table, work).equals(table)


def asked(queries: list[int | None], kind: str = "inference") -> pl.DataFrame:
    table = conform("steps", pl.DataFrame({"step": range(len(queries))}))
    opens = pl.int_range(len(queries), dtype=pl.Int64, eager=True) * MS
    record = {"query": pl.Series(queries, dtype=pl.Int64), "mark_ns": opens, "end_ns": opens + MS}
    return table.with_columns(kind=pl.lit(kind), samples=pl.lit(2, pl.Int64), **record)


def attention(step: int, shapes: str, name: str = "aten::scaled_dot_product_attention") -> pl.DataFrame:
    return conform("ops", pl.DataFrame({"name": [name], "shapes": [shapes], "start_ns": [step * MS + 5]}))


LOOP = [16, 1, 1, 1, 16, 1, 1, 1]
NAMED = ["prefill", "decode", "decode", "decode"] * 2


@pytest.mark.parametrize(
    ("step", "shapes", "name"),
    [
        (1, "[[2, 4, 1, 8], [2, 4, 17, 8], [2, 4, 17, 8]]", "aten::scaled_dot_product_attention"),
        (4, "[[2, 4, 16, 8], [2, 4, 16, 8], [2, 4, 16, 8]]", "aten::scaled_dot_product_attention"),
        (1, "[[2, 1, 4, 8], [2, 17, 4, 8], [2, 17, 4, 8]]", "flash_attn::_flash_attn_forward"),
        (2, "[[2, 4, 1, 18], [], []]", "aten::_softmax"),
        (2, "[[2, 2, 4, 18], [], []]", "aten::_softmax"),  # batch, key heads, their query heads, keys
        (2, "[[2, 2, 4, 1, 18], [], []]", "aten::_softmax"),
        (4, "[[2, 2, 4, 16, 16], [], []]", "aten::_softmax"),
    ],
)
def test_attention_with_as_many_queries_as_ids_is_prefill_and_decode(
    step: int, shapes: str, name: str
) -> None:
    result = classified(asked(LOOP), attention(step, shapes, name))
    assert result["kind"].to_list() == NAMED
    assert result["tokens"].to_list() == [2 * length for length in LOOP]


@pytest.mark.parametrize(
    ("step", "shapes"),
    [
        (1, "[[3, 2, 4, 18]]"),  # not of the batch
        (1, "[[2, 2, 4, 1]]"),  # of one key
        (4, "[[2, 2, 4, 18]]"),  # not of 16 queries
        (1, "[[2, 4, 18]]"),
    ],
)
def test_a_softmax_over_something_else_than_keys_is_no_attention(step: int, shapes: str) -> None:
    result = classified(asked(LOOP), attention(step, shapes, "aten::_softmax"))
    assert set(result["kind"]) == {"inference of one", "inference of many"}


@pytest.mark.parametrize(
    "shapes",
    [
        "[[2, 4, 1, 8], [2, 4, 1, 8], [2, 4, 1, 8]]",  # one query over one key: nothing was kept
        "[[2, 4, 5, 8], [2, 4, 5, 8], [2, 4, 5, 8]]",  # of something else
        "[[2, 50]]",
        "[]",
        "torn [",
        "{}",
        "3",
    ],
)
def test_without_attention_over_the_ids_the_steps_only_differ(shapes: str) -> None:
    result = classified(asked(LOOP), attention(1, shapes))
    assert set(result["kind"]) == {"inference of one", "inference of many"}
    assert result["tokens"].null_count() == len(LOOP)
    assert classified(asked(LOOP), None)["kind"].equals(result["kind"])


@pytest.mark.parametrize(
    "queries",
    [
        [],
        [16] * 8,
        [1] * 8,
        [16, 1, 1, 1, 1],  # one prompt alone
        [*range(1, 9)] * 3,  # no cache: every call has one id more
        [16, 1] * 5,  # never two in a row: nothing shows that anything is kept
        [None] * 8,
    ],
)
def test_inputs_that_show_no_cache_leave_the_steps_alone(queries: list[int | None]) -> None:
    steps = asked(queries)
    assert classified(steps, None).equals(steps)


def test_steps_whose_kind_is_known_keep_it() -> None:
    steps = asked(LOOP, "train")
    assert classified(steps, None).equals(steps)
