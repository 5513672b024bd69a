"""Candidates in order of their prediction, and results that survive in the journal."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from fathom.tuner.effects import Effect, effects
from fathom.tuner.judging import Gains
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
KNOWN = {"a": Prior(None, "unknown", guess=0.1), "b": Prior(0.3, "findings"), "c": Prior(0.0, "account")}


def step(search: Search, gains: dict[str, float]) -> dict[str, str]:
    """Measure the next candidate of a program in which values multiply."""
    trial, choice = search.ask()
    logs = [sum(math.log(1 - gains.get(value, 0.0)) for value in choice.values())]
    search.tell(trial, choice, Measured(choice, logs))
    return choice


def test_single_settings_come_first_by_their_prediction() -> None:
    search = Search(KNOBS, KNOWN, None)
    order = [step(search, {}) for _ in range(6)]
    assert order == [{"b": "b0"}, {"a": "a0"}, {"b": "b1"}, {"a": "a1"}, {"c": "c0"}, {"c": "c1"}]
    assert not search.untried()


def test_those_that_paid_are_combined() -> None:
    search, gains = Search(KNOBS, KNOWN, None), {"b1": 0.2, "c0": 0.1, "a0": 0.001}
    for _ in range(6):
        step(search, gains)
    search.combine(0.0)
    assert step(search, gains) == {"b": "b1", "c": "c0"}
    assert search.ranked()[0].choice == {"b": "b1", "c": "c0"}


def test_the_journal_keeps_what_was_measured(tmp_path: Path) -> None:
    journal = tmp_path / "search.journal"
    first = Search(KNOBS, KNOWN, journal)
    for _ in range(3):
        step(first, {"b0": 0.5})
    first.ask()  # killed while it runs
    again = Search(KNOBS, KNOWN, journal)
    assert len(again.untried()) == 3 and again.ranked()[0].gain == pytest.approx(0.5)
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
    both = lucky | good  # not measured yet
    assert [known.choice for known in search.contenders({}, 2, 3)] == [lucky, good]
    assert [known.choice for known in search.contenders(both, 3, 3)] == [both, lucky, good]
    assert [known.choice for known in search.contenders(good, 2, 3)] == [good, lucky]
    search.add(Measured(lucky, [0.01, 0.0]))
    assert search.ranked()[0].choice == good
    search.add(Measured(good, [-0.2]))
    assert [known.choice for known in search.contenders({}, 2, 3)] == [{"c": "c0"}]


def measured(search: Search, gains: dict[str, float], *choices: tuple[dict[str, str], int]) -> None:
    """Add choices, each measured so many times, of a program in which the gains of values multiply."""
    for choice, count in choices:
        log = sum(math.log(1 - gains.get(value, 0.0)) for value in choice.values())
        search.add(Measured(choice, [log] * count))


def test_the_settings_that_pay_by_all_measurements_are_proposed() -> None:
    search = Search(KNOBS, KNOWN, None)
    harmful = {"a": "a1", "b": "b1", "c": "c1"}  # c1 takes what b1 gains
    measured(search, {"a1": 0.2, "b1": 0.1, "c1": -1 / 9}, ({"a": "a1"}, 2), (harmful, 2), ({"c": "c1"}, 1))
    assert {"a": "a1", "b": "b1"} not in [known.choice for known in search.measured.values()]
    assert search.proposed(0.005) == {"a": "a1", "b": "b1"}
    assert search.proposed(10.0) == {}  # nothing is known
    assert Search(KNOBS, KNOWN, None).proposed(0.005) == {}


@pytest.mark.parametrize(("error", "value"), [(0.001, "a1"), (0.05, "a0")])
def test_of_values_that_may_be_equally_fast_the_one_that_is_listed_first_is_proposed(
    error: float, value: str
) -> None:
    search = Search(KNOBS, KNOWN, None)
    measured(search, {"a0": 0.29, "a1": 0.3, "b0": 0.3}, ({"a": "a0"}, 4), ({"a": "a1"}, 4), ({"b": "b0"}, 1))
    assert search.proposed(error)["a"] == value
    search.combine(error)
    while step(search, {}) != {"a": value, "b": "b0"}:
        assert len(search.measured) < 20


def test_the_proposed_choice_comes_first_if_it_may_be_as_fast_as_the_best() -> None:
    search = Search(KNOBS, KNOWN, None)
    more, proposal, single = {"a": "a1", "b": "b1"}, {"a": "a1"}, {"b": "b1"}
    measured(search, {"a1": 0.2, "b1": 0.02}, (more, 4), (proposal, 1), (single, 4))
    assert [known.choice for known in search.finalists(proposal, 0.01, 0.02)] == [proposal, more, single]
    assert [known.choice for known in search.finalists(proposal, 0.05, 1e-6)] == [more, proposal]
    assert [known.choice for known in search.finalists({}, 0.01, 0.02)] == [more, single, proposal]
    assert search.finalists(proposal, 0.5, 0.02) == []


@pytest.mark.parametrize(
    ("gain", "error", "effect", "kept"),
    [
        (0.05, 0.02, None, True),
        (0.05, 0.04, None, False),
        (0.05, 0.04, Effect(-0.07, 0.03), True),  # both together say enough
        (0.05, 0.02, Effect(0.02, 0.01), False),  # the search saw that it costs time
        (0.005, 0.001, Effect(-0.005, 0.001), False),  # it is not worth a setting
    ],
)
def test_ablation_and_search_decide_which_settings_stay(
    gain: float, error: float, effect: Effect | None, kept: bool
) -> None:
    assert Gains({"a": gain}, {"a": error}, {"a": effect} if effect else {}).pays("a") == kept


def test_a_gain_is_the_weighted_mean_of_ablation_and_search() -> None:
    gains = Gains({"a": 0.05, "b": 0.1}, {"a": 0.02, "b": 0.02}, {"a": Effect(-0.08, 0.01)})
    assert gains.combined == pytest.approx({"a": (0.05 / 4 + 0.08) / (1 / 4 + 1), "b": 0.1})


@pytest.mark.parametrize("seed", range(5))
def test_effects_are_those_of_the_program_although_some_runs_were_disturbed(seed: int) -> None:
    draw, scatter = random.Random(seed), 0.02
    truth = {("k", "fast"): -0.2, ("k", "slow"): 0.1, ("m", "none"): 0.0, ("n", "good"): -0.1}
    rows = []
    for _ in range(60):
        names = {
            knob: draw.choice([n for n in truth if n[0] == knob]) for knob in "kmn" if draw.random() < 0.5
        }
        log = sum(truth[name] for name in names.values()) + draw.gauss(0, scatter)
        log += math.log(1.8) if draw.random() < 0.05 else 0.0
        rows.append((dict(names.values()), log, 1))
    for name, effect in effects(rows, scatter).items():
        assert abs(effect.log - truth[name]) < 5 * effect.error and effect.error < scatter
    assert effects([], scatter) == {}


def test_a_disturbed_run_of_the_baseline_makes_nothing_look_fast() -> None:
    assert _level(math.log(100), math.log(101)) == pytest.approx(math.log(100.5), abs=1e-4)
    assert _level(math.log(180), math.log(100)) == _level(math.log(100), math.log(180)) == math.log(100)


@pytest.mark.parametrize(("log", "leads"), [(-0.3, True), (-0.19, True), (-0.1, False)])
def test_only_values_that_may_be_the_best_of_their_knob_get_a_second_look(log: float, leads: bool) -> None:
    search = Search(KNOBS, KNOWN, None)
    search.add(Measured({"a": "a0"}, [-0.2, -0.2]))
    assert search.may_lead(Measured({"a": "a1"}, [log]), 0.02) == leads
    assert search.may_lead(Measured({"b": "b0"}, [-0.05]), 0.02), "another knob has its own best value"


def test_the_largest_predicted_gain_is_hoped_for_until_its_knob_was_timed() -> None:
    known = {"a": Prior(0.25, "findings"), "b": Prior(None, "findings", values={"b1": 0.4}), "c": KNOWN["a"]}
    search = Search(KNOBS, known, None)
    assert search.hope(0.2) == {"b": "b1"}
    search.add(Measured({"b": "b1"}, [], "crashed"))
    assert search.hope(0.2) == {"a": "a0"} and search.hope(0.3) == {}
    search.add(Measured({"a": "a0"}, [0.01]))
    assert search.hope(0.2) == {}, "the other values of a gain what its first one leaves"
