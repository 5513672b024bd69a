"""Evaluation of trials on steps with a planted gain, with drift and bursts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fathom.analysis import trial_results
from fathom.analysis.results import Trial
from fathom.cli.run import fill_alone
from fathom.diagnosis.engine.claims import Sized
from fathom.diagnosis.engine.predict import observed
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.rules import Candidate
from fathom.errors import BadInputError
from fathom.recorder import Plan
from fathom.recorder import trials as trials_of
from fathom.sounding.schema import STEPS

MS = 1_000_000


def _steps(stretches):
    """Rows of `stretches`: (phase, lengths in ms); a step of transition between two."""
    rows, now = [], 0
    for burst, (phase, lengths) in enumerate(stretches):
        for name, ms in [("transition", 100.0), *((phase, ms) for ms in lengths)]:
            end = now + round(ms * MS)
            item = {"step": len(rows), "kind": "train", "mark_ns": now, "end_ns": end}
            rows.append(item | {"phase": name, "burst": 2 * burst + (name == phase)})
            now = end
    return pl.DataFrame(rows, schema=STEPS)


def _turns(kind, gain, count=5, drift=0.0, noise=0.0, steps=8, seed=1):
    random = np.random.default_rng(seed)
    result = []
    for turn in range(2 * count + 1):
        usual = 20 + drift * turn - (gain if turn % 2 else 0)
        phase = f"trial-{kind}" if turn % 2 else "trial-baseline"
        result.append((phase, usual + noise * random.standard_normal(steps)))
    return result


def test_a_planted_gain_is_found_under_drift():
    result, abstained = trial_results(_steps(_turns("input", 12.0, drift=0.5)), "train")
    (item,) = result
    assert abstained == []
    assert (item.kind, item.n, item.trials) == ("input", 40, 5)
    assert item.gain_ms == pytest.approx(12.0, abs=0.02)
    assert item.low_ms <= item.gain_ms <= item.high_ms
    assert item.share == pytest.approx(12 / item.baseline_mean_ms, rel=1e-3)


@pytest.mark.parametrize(("count", "drift"), [(3, 0.0), (5, 0.0), (5, 0.3)])
def test_the_interval_holds_the_planted_gain_about_as_often_as_it_says(count, drift):
    values = []
    for seed in range(60):
        turns = _turns("gc", 3.0, count=count, drift=drift, noise=1.0, seed=seed)
        (item,), _ = trial_results(_steps(turns), "train")
        values.append(item.low_ms <= 3.0 <= item.high_ms)
    assert sum(values) >= 52


def test_rare_long_steps_count_in_the_gain_unlike_in_the_median():
    stretch = [10.0] * 7 + [90.0]
    turns = [("trial-baseline", stretch), ("trial-logging", [10.0] * 8)] * 4
    (item,), _ = trial_results(_steps(turns), "train")
    assert item.gain_ms == pytest.approx(10.0)
    assert item.baseline_ms == item.trial_ms == pytest.approx(10.0)


def test_too_few_trials_abstain_and_interrupted_ones_do_not_count():
    turns = _turns("input", 5.0, count=3)
    cut = [*turns[:5], ("trial-input", [500.0]), turns[6]]
    for some in (turns[:5], cut):
        result, abstained = trial_results(_steps(some), "train")
        assert result == [] and [absence.what for absence in abstained] == ["what-if input"]
    assert trial_results(_steps([("clean", [10.0] * 8)]), "train") == ([], [])
    assert trial_results(_steps([]), "train") == ([], [])


def test_steps_of_another_kind_do_not_count():
    rows = _steps(_turns("input", 12.0))
    longest = rows.with_columns(
        kind=pl.when(pl.col("step") % 9 == 8).then(pl.lit("train+evaluation")).otherwise("kind"),
        end_ns=pl.col("end_ns"),
    )
    (item,), _ = trial_results(longest, "train")
    assert item.n == 35 and item.gain_ms == pytest.approx(12.0, abs=0.02)


def test_a_trial_interrupted_by_other_steps_counts_once():
    rows = _steps(_turns("input", 12.0, count=3))
    rows = rows.with_columns(
        kind=pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("evaluation")).otherwise("kind")
    )
    (item,), _ = trial_results(rows, "train")
    assert (item.trials, item.gain_ms) == (3, pytest.approx(12.0))
    few = rows.filter(pl.col("burst") <= 4)  # one trial
    assert trial_results(few, "train")[0] == []


def _trial(kind, gain, low, high):
    return Trial(kind, 40, 5, 20.0, 20.0 - gain, 20.0, 20.0 - gain, gain, low, high, gain / 20)


def test_an_observed_gain_replaces_the_predicted_one_of_its_kind_alone():
    result = [
        Sized(Candidate("input-too-few-workers", [], []), 8.0, 6.0, 10.0),
        Sized(Candidate("input-collate", [], []), 2.0, 1.0, 3.0),
        Sized(Candidate("host-launch-bound", [], []), 3.0, 2.0, 4.0),
    ]
    tried = {"input": _trial("input", 11.0, 10.0, 12.0), "gc": _trial("gc", 1.0, 0.5, 1.5)}
    by_kind = {item.candidate.kind: item for item in observed(result, tried)}
    workers = by_kind["input-too-few-workers"]
    assert (workers.ms, workers.low, workers.high, workers.predicted) == (11.0, 10.0, 12.0, 8.0)
    assert workers.step_ms == 20.0 and by_kind["host-launch-bound"].step_ms is None  # a share of that step
    assert workers.observed and not by_kind["host-launch-bound"].observed
    assert by_kind["input-collate"].ms == 2.0 and not by_kind["input-collate"].observed


def test_an_observed_loss_is_not_a_gain():
    (item,) = observed(
        [Sized(Candidate("host-logging", [], []), 8.0, 6.0, 10.0)],
        {"logging": _trial("logging", -1.0, -2.0, 0.5)},
    )
    assert (item.ms, item.low, item.high) == (0.0, 0.0, 0.5)


def test_kinds_name_trials_that_exist():
    assert {kind.trial for kind in kinds().values()} == {None, "input", "logging", "gc"}


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("--what-if -- python a.py", "--what-if all -- python a.py"),
        ("--what-if input gc -- python a.py", "--what-if input,gc -- python a.py"),
        ("--what-if input,gc --raw python a.py", "--what-if input,gc --raw python a.py"),
        ("--what-if inputs -- python a.py", "--what-if inputs -- python a.py"),
        ("--what-if sh -- a.sh", "--what-if all sh -- a.sh"),
        ("--what-if python --what-if", "--what-if all python --what-if"),
        ("--raw -- --what-if", "--raw -- --what-if"),
    ],
)
def test_the_option_may_stand_alone_or_before_kinds(words, taken):
    assert fill_alone(words.split(), {"--what-if"}) == taken.split()


def test_kinds_are_checked_and_checkpoints_never_left_out():
    assert trials_of("gc, input") == ("gc", "input")
    assert set(trials_of("all")) == {"input", "logging", "gc"} and trials_of(None) == ()
    for kind in ("checkpoint", "sleep"):
        with pytest.raises(BadInputError, match=kind):
            Plan(what_if=(kind,))
