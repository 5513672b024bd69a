"""Plans of long runs: Young and Daly against simulation and brute force, published failures and goodput."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fathom.errors import BadInputError
from fathom.planner.reliability import (
    Checkpoint,
    Job,
    Run,
    daly,
    expected_goodput,
    explained,
    failures_of,
    plan_reliability,
    simulate,
    young,
)

LLAMA = Run(16384, 49, 405e9, failures_of("h100"))
SYNC = Checkpoint(1e12, "sync", 1e12 / 60, 64)  # 60 s to write and to read


def test_young_and_dalys_published_example():
    # Daly (2006): for small costs the orders agree; for large ones the interval is the time between failures.
    assert young(300, 24 * 3600) == pytest.approx(math.sqrt(2 * 300 * 86400))
    assert daly(1, 1e6) == pytest.approx(young(1, 1e6), rel=2e-3)
    assert daly(200, 90) == 90


@pytest.mark.parametrize("mtbf_s", [2000.0, 20000.0])
def test_dalys_interval_is_the_best_of_the_exact_formula(mtbf_s):
    stop, down = 60.0, 300.0
    grid = np.geomspace(20, 20000, 4000)
    best = max(grid, key=lambda t: expected_goodput(t, stop, down, mtbf_s))
    assert daly(stop, mtbf_s) == pytest.approx(best, rel=0.03)


@pytest.mark.parametrize("interval_s", [300.0, 900.0, 3000.0])
def test_the_simulation_agrees_with_dalys_exact_formula(interval_s):
    job = Job(3e6, 5000, SYNC, interval_s, detection_s=100, restart_s=200)
    spent = simulate(job, 200)
    # Daly's model lets failures strike during restart too, which the simulation does not.
    down = -5000 * math.log(1 - 360 / (5000 + 360))
    formula = expected_goodput(interval_s, SYNC.stop_s, down, 5000)
    assert spent[:, 0].sum() / spent.sum() == pytest.approx(formula, abs=0.006)


def test_the_simulation_accounts_for_every_second_and_finishes_the_work():
    spent = simulate(Job(1e5, 5000, SYNC, 600), 50)
    assert spent[:, 0] == pytest.approx(np.full(50, 1e5))
    assert (spent >= 0).all()


def test_the_published_failures_and_goodput_of_llama_3():
    # arXiv:2407.21783: 419 unexpected and 47 planned interruptions in 54 days; more than 90 % effective time
    failures = failures_of("h100")
    unexpected = failures.rate - failures.by_component["planned (upgrades, changes)"]
    assert 1 / (unexpected * 16384) == pytest.approx(3.09, rel=0.01)
    plan = plan_reliability(LLAMA)
    assert plan.failures.value == pytest.approx(466 * plan.wall_days.value / 54, rel=1e-6)
    low, high = plan.goodput.interval
    assert 0.90 <= plan.goodput.value <= 0.95 and low < plan.goodput.value < high
    assert any("= 91" in line or "= 92" in line for line in explained(plan))


def test_checkpoints_that_block_less_give_more_goodput():
    slow = replace(LLAMA, storage=20e9, kind="sync")
    sync, hidden = plan_reliability(slow), plan_reliability(replace(slow, kind="async"))
    memory = plan_reliability(replace(slow, kind="memory"))
    assert sync.goodput.value < hidden.goodput.value < memory.goodput.value


def test_too_few_spares_make_jobs_wait():
    few = simulate(Job(1e6, 20000, SYNC, 1000, spares=1, repair_h=10), 100)
    many = simulate(Job(1e6, 20000, SYNC, 1000, spares=12, repair_h=10), 100)
    assert few[:, 5].mean() > 20 * max(1.0, many[:, 5].mean())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": 10**8}, "makes no progress; the fastest restart that works"),
        ({"gpus": 131072, "spares": 2}, "use 86 spares"),
        ({"kind": "hourly"}, "choose one of sync, async, memory"),
        ({"days": 0}, "days is 0"),
        ({"days": 1e6}, "give at most 36,500"),
        ({"interval_s": 1e6}, "too rare for failures every"),
        ({"storage": 1e6}, "the slowest storage that works is about"),
        ({"interval_s": math.nan}, "interval is nan"),
        ({"restart_s": math.inf}, "restart is inf"),
    ],
)
def test_impossible_runs_are_one_sentence(changes, words):
    with pytest.raises(BadInputError, match=words):
        plan_reliability(replace(LLAMA, **changes))
