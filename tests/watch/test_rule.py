"""The alert rule finds lasting slowdowns, and nothing in steps that only scatter."""

from __future__ import annotations

import random

import pytest

from fathom.errors import BadInputError
from fathom.watch.rule import Detector, Rule


def noisy(rng: random.Random, mean: float, count: int) -> list[int]:
    """Steps whose lengths scatter by 5 %, every hundredth three times as long, every 20th a pause."""
    steps = [mean * rng.lognormvariate(0, 0.05) for _ in range(count)]
    return [int(step * (3 if rng.random() < 0.01 else 1)) for step in steps]


def crossings(detector: Detector, steps: list[int]) -> list[int]:
    return [k for k, ns in enumerate(steps) if detector.add(ns)]


def test_no_alert_in_a_hundred_programs_that_stay_as_they_are():
    for seed in range(100):
        assert crossings(Detector(Rule(10, 50)), noisy(random.Random(seed), 1e7, 3000)) == []


def test_a_slowdown_of_twice_the_rule_is_found_within_its_steps_and_a_block():
    for seed in range(100):
        rng = random.Random(seed)
        at = rng.randrange(300, 900)
        alerts = crossings(Detector(Rule(10, 50)), noisy(rng, 1e7, at) + noisy(rng, 1.2e7, 400))
        assert len(alerts) == 1 and at < alerts[0] <= at + 70


def test_an_alert_ends_when_steps_are_fast_again_and_may_begin_again():
    detector = Detector(Rule(20, 10))
    steps = [100] * 100 + [200] * 50 + [100] * 50 + [200] * 50
    assert crossings(detector, steps) == [109, 159, 209] and detector.alerting


def test_steps_that_become_slower_again_raise_another_alert():
    detector = Detector(Rule(20, 10))
    steps = [100] * 100 + [150] * 50 + [1500] * 50 + [100] * 50
    assert crossings(detector, steps) == [109, 159, 209] and not detector.alerting
    gradual = [100] * 100 + [200] * 50 + [210] * 50
    assert crossings(Detector(Rule(20, 10)), gradual) == [109]


def test_one_long_step_raises_no_alert():
    assert crossings(Detector(Rule(10, 50)), [100] * 400 + [100_000] + [100] * 400) == []


def test_marks_of_a_host_that_runs_ahead_are_averaged():
    bursts = ([10] * 9 + [910]) * 100  # nine launches, then a wait for the device: 100 a step
    assert crossings(Detector(Rule(10, 50)), bursts) == []
    slower = ([10] * 9 + [1210]) * 100
    assert len(crossings(Detector(Rule(10, 50)), bursts + slower)) == 1


def test_fewer_steps_than_the_baseline_needs_raise_nothing():
    detector = Detector(Rule(10, 50))
    assert crossings(detector, [100] * 40 + [10_000] * 9) == [] and detector.baseline_ns is None


@pytest.mark.parametrize(("percent", "steps"), [(0, 50), (-5, 50), (float("nan"), 50), (20, 4)])
def test_rules_that_would_always_hold_are_refused(percent, steps):
    with pytest.raises(BadInputError, match="takes at least"):
        Rule(percent, steps)
