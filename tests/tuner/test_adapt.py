"""An adaptive setting costs little more than the best fixed value, and leaves bad ones at once."""

from __future__ import annotations

import random

import pytest

import fathom
from fathom.tuner import Adaptive

STEPS = 4000


def total(setting: Adaptive[int], cost, seed: int) -> tuple[float, list[int]]:
    """Return the true cost of all steps, and the value of each."""
    draw, spent, used = random.Random(seed), 0.0, list[int]()
    for step in range(STEPS):
        value = setting.value
        used.append(value)
        mean = cost(value, step)
        spent += mean
        setting.cost(mean * draw.lognormvariate(0, 0.1))
    return spent, used


def hindsight(cost) -> float:
    return min(sum(cost(value, step) for step in range(STEPS)) for value in range(5))


@pytest.mark.parametrize("seed", range(5))
def test_it_costs_little_more_than_the_best_fixed_value(seed: int) -> None:
    means = random.Random(seed).sample([1.0, 1.1, 1.3, 1.6, 4.0], 5)

    def cost(value: int, step: int) -> float:
        return means[value]

    spent, used = total(fathom.adapt(range(5)), cost, seed)
    assert spent <= 1.05 * hindsight(cost)
    assert max(set(used), key=used.count) == means.index(1.0)
    assert used.count(means.index(4.0)) <= STEPS * 0.01


@pytest.mark.parametrize("seed", range(5))
def test_it_follows_a_change(seed: int) -> None:
    def cost(value: int, step: int) -> float:
        return 1.0 + 0.3 * abs(value - (1 if step < STEPS / 2 else 3))

    spent, used = total(fathom.adapt(range(5), default=1), cost, seed)
    assert spent < hindsight(cost)  # no fixed value is best in both halves
    assert max(set(used[-400:]), key=used[-400:].count) == 3


def test_a_value_that_fails_is_never_used_again() -> None:
    setting = fathom.adapt(["safe", "fails"], default="safe")
    used = []
    for _ in range(500):
        used.append(setting.value)
        setting.failed() if setting.value == "fails" else setting.cost(2.0)
    assert used.count("fails") == 1 and setting.best == "safe" and setting.rollbacks == 1


def test_the_default_is_kept_without_a_better_value() -> None:
    setting = fathom.adapt([1], default=1)
    for _ in range(50):
        setting.cost(1.0)
    assert setting.value == 1
    with pytest.raises(ValueError, match="adapt needs values"):
        fathom.adapt([])
