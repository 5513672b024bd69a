"""Goodput: entries that sum to the wall time, against a count of every tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis import goodput_of
from fathom.report.goodput import section, verdict
from fathom.sounding import Manifest, Phase, Rank, Store, Writer, conform, open_store

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


def recorded(
    folder: Path, lengths: list[int], kinds: list[str], waits: list[tuple[str, int, int]], **at: Any
) -> Store:
    """A recording that starts at `start`, steps from `first` on, and ends at `end`, all in seconds."""
    start, first, end = (EPOCH + at[name] * SECOND for name in ("start", "first", "end"))
    marks = [first + SECOND * sum(lengths[:k]) for k in range(len(lengths) + 1)]
    steps = {"mark_ns": marks[:-1], "end_ns": marks[1:], "kind": kinds, "step": list(range(len(lengths)))}
    rows = [
        {"cause": cause, "thread": 1, "start_ns": EPOCH + low * SECOND, "end_ns": EPOCH + high * SECOND}
        for cause, low, high in waits
    ]
    writer = Writer(folder)
    writer.write(0, "steps", conform("steps", pl.DataFrame(steps).with_columns(thread=1)))
    writer.write(0, "waits", conform("waits", pl.DataFrame(rows)))
    phases = [Phase(0, at.get("phase", "clean"), 0, start, end, len(lengths))]
    return writer.finish(Manifest(ranks=[Rank(0)], phases=phases, created_ns=start, ended_ns=end), {})


def seconds(store: Store, *more: Store) -> dict[str, float]:
    goodput = goodput_of([store, *more])
    assert goodput is not None
    return {entry: ns / SECOND for entry, ns in goodput.entries_ns.items() if ns}


def test_every_second_of_a_job_has_one_entry(tmp_path: Path) -> None:
    store = recorded(
        tmp_path / "a.fathom",
        [2, 2, 2, 12, 2, 9, 22, 2],
        ["train", "train", "train", "train", "train", "train+evaluation", "train", "train"],
        [("compilation", 3, 5), ("checkpoint", 17, 27), ("input", 11, 12), ("checkpoint", 4, 6)],
        start=0,
        first=10,
        end=70,
    )
    assert seconds(store) == {
        "productive": 16,
        "start-up": 7,
        "compilation": 2,
        "evaluation": 7,
        "checkpoint": 11,
        "stall": 20,
        "shutdown": 7,
    }
    goodput = goodput_of([store])
    assert goodput is not None and goodput.share == 16 / 70 and goodput.wall_s == 70
    assert verdict(goodput) == "Goodput 22.9 % of 70 s; the largest loss is stall, 20 s."
    assert any("checkpoint" in line.plain and "11.000" in line.plain for line in section(goodput, 100))


def test_a_step_that_only_evaluates_is_evaluation(tmp_path: Path) -> None:
    kinds = ["train", "train", "train", "evaluation", "evaluation", "train"]
    store = recorded(tmp_path / "a.fathom", [2, 2, 2, 1, 3, 2], kinds, [], start=0, first=1, end=14)
    assert seconds(store) == {"productive": 8, "start-up": 1, "evaluation": 4, "shutdown": 1}


@pytest.mark.parametrize(("loader", "lost"), [(0, 10), (1, 0)])
def test_batches_after_the_last_step_are_of_steps_that_nothing_counted(
    tmp_path: Path, loader: int, lost: int
) -> None:
    """Ten steps of a second are marked, and ten more are not; another loader feeds an evaluation."""
    recorded(tmp_path / "a.fathom", [1] * 10, ["train"] * 10, [], start=0, first=2, end=25)
    batches = {
        "loader": [0] * 10 + [loader] * 10,
        "start_ns": [EPOCH + second * SECOND for second in range(2, 22)],
        "wait_ns": [SECOND] * 20,
    }
    conform("input", pl.DataFrame(batches)).write_parquet(tmp_path / "a.fathom" / "rank-0" / "input.parquet")
    entries = seconds(open_store(tmp_path / "a.fathom"))
    assert entries.pop("unattributed", 0) == lost
    assert entries == {"productive": 10, "start-up": 2, "shutdown": 13 - lost}


def test_attempts_of_a_job_are_one_wall_time(tmp_path: Path) -> None:
    first = recorded(tmp_path / "a.fathom", [1] * 10, ["train"] * 10, [], start=0, first=5, end=16)
    second = recorded(tmp_path / "b.fathom", [1] * 20, ["train"] * 20, [], start=30, first=37, end=57)
    wanted = {"productive": 30, "start-up": 5, "restart": 21, "shutdown": 1}
    assert seconds(first, second) == seconds(second, first) == wanted
    goodput = goodput_of([first, second])
    assert goodput is not None and (goodput.attempts, goodput.steps, goodput.wall_s) == (2, 30, 57)


def test_profiled_steps_give_no_goodput(tmp_path: Path) -> None:
    about = {"start": 0, "first": 1, "end": 4}
    store = recorded(tmp_path / "a.fathom", [1, 1], ["train"] * 2, [], phase="timeline", **about)
    assert goodput_of([store]) is None and goodput_of([]) is None


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    evaluates=st.lists(st.booleans(), min_size=12, max_size=12),
    waits=st.lists(
        st.tuples(st.sampled_from(("compilation", "checkpoint")), st.integers(0, 60), st.integers(0, 60)),
        max_size=6,
    ),
)
def test_entries_equal_a_count_of_every_second(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    evaluates: list[bool],
    waits: list[tuple[str, int, int]],
) -> None:
    first, end = 7, 7 + sum(lengths) + 3
    waits = [(cause, min(low, high), min(max(low, high), end)) for cause, low, high in waits if low < end]
    waits = [wait for wait in waits if wait[1] < wait[2]]
    kinds = ["train+evaluation" if each else "train" for each in evaluates[: len(lengths)]]
    folder = tmp_path_factory.mktemp("goodput") / "a.fathom"
    entries = seconds(recorded(folder, lengths, kinds, waits, start=0, first=first, end=end))
    inside = {
        cause: {t for name, low, high in waits if name == cause for t in range(low, high)}
        for cause in ("compilation", "checkpoint")
    }
    compiling, saving = inside["compilation"], inside["checkpoint"] - inside["compilation"]
    assert entries.get("compilation", 0) == len(compiling) and entries.get("checkpoint", 0) == len(saving)
    left = set(range(end)) - compiling - saving
    assert entries.get("start-up", 0) == len([t for t in left if t < first])
    assert entries.get("shutdown", 0) == len([t for t in left if t >= end - 3])
    assert sum(entries.values()) == end
