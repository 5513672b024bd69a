"""Candidates in order of their prediction, and results that survive in the journal."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from fathom.tuner.knobs import Knob, Value
from fathom.tuner.pairing import _level
from fathom.tuner.priors import Prior
from fathom.tuner.search import Measured, Search

KNOBS = [
    Knob(
        id=name,
        title=name,
        values=tuple(Value(name=f"{name}{i}", environment={name: str(i)}) for i in range(2)),
    )
    for name in ("a", "b", "c")
]
KNOWN = {"a": Prior(0.1, "experience"), "b": Prior(0.3, "findings"), "c": Prior(0.0, "account")}


def step(search: Search, gains: dict[str, float]) -> dict[str, str]:
    """Measure the next candidate of a program in which values multiply."""
    trial, choice = search.ask()
    logs = [sum(math.log(1 - gains.get(value, 0.0)) for value in choice.values())]
    search.tell(trial, choice, Measured(choice, logs))
    return choice


def test_single_settings_come_first_by_their_prediction() -> None:
    search = Search(KNOBS, KNOWN, None)
    order = [step(search, {}) for _ in range(6)]
    assert order == [{"b": "b0"}, {"b": "b1"}, {"a": "a0"}, {"a": "a1"}, {"c": "c0"}, {"c": "c1"}]
    assert search.untried() == 0


def test_those_that_paid_are_combined() -> None:
    search, gains = Search(KNOBS, KNOWN, None), {"b1": 0.2, "c0": 0.1, "a0": 0.001}
    for _ in range(6):
        step(search, gains)
    search.combine()
    assert step(search, gains) == {"b": "b1", "c": "c0"}
    assert search.ranked()[0].choice == {"b": "b1", "c": "c0"}


def test_the_journal_keeps_what_was_measured(tmp_path: Path) -> None:
    journal = tmp_path / "search.journal"
    first = Search(KNOBS, KNOWN, journal)
    for _ in range(3):
        step(first, {"b0": 0.5})
    first.ask()  # killed while it runs
    again = Search(KNOBS, KNOWN, journal)
    assert again.untried() == 3 and again.ranked()[0].gain == pytest.approx(0.5)
    assert {"a": "a1"} in [step(again, {}) for _ in range(3)], "the candidate that was running is not lost"


def test_other_knobs_begin_another_search(tmp_path: Path) -> None:
    journal = tmp_path / "search.journal"
    step(Search(KNOBS, KNOWN, journal), {})
    other = Search(KNOBS[:2], KNOWN, journal)
    assert not other.measured and step(other, {}) == {"b": "b0"}


def test_the_fastest_are_measured_again_until_known() -> None:
    search = Search(KNOBS, KNOWN, None)
    lucky, good = {"a": "a0"}, {"b": "b1"}
    search.add(Measured(lucky, [-0.6]))
    search.add(Measured(good, [-0.2, -0.21]))
    search.add(Measured({"c": "c0"}, [-0.01]))
    assert [known.choice for known in search.contenders(2, 3)] == [lucky, good]
    search.add(Measured(lucky, [0.01, 0.0]))
    assert search.ranked()[0].choice == good
    search.add(Measured(good, [-0.2]))
    assert [known.choice for known in search.contenders(2, 3)] == [{"c": "c0"}]


def test_a_disturbed_run_of_the_baseline_makes_nothing_look_fast() -> None:
    assert _level(math.log(100), math.log(101)) == pytest.approx(math.log(100.5), abs=1e-4)
    assert _level(math.log(180), math.log(100)) == _level(math.log(100), math.log(180)) == math.log(100)
