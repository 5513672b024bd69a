"""What bursts with counters cost, by stretches with and without them in one process."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import burst_cost
from burst_cost import BEFORE, SKIPPED, WARM_UP, Stretches

STEP_NS = 10_000_000


class Host:
    """A program whose steps take `cost` more inside bursts and `left` more once Kineto ran. Its host drifts,
    and the first steps of a stretch take twice as long."""

    def __init__(self, cost: float, left: float = 0.0, seed: int = 0) -> None:
        self.cost, self.left, self.draw = cost, left, random.Random(seed)
        self.now, self.on, self.traced, self.fresh, self.rested = 0, False, False, 0, 0
        self.log: list[str] = []
        self.taken = 0  # steps that something else on the host takes now and then

    def switch(self, on: bool) -> None:
        assert on != self.on and self.log[-1] == "settle"
        self.on, self.fresh = on, SKIPPED
        self.now += 50 * STEP_NS * on
        self.rested = self.now

    def kineto(self) -> None:
        assert not self.on and not self.traced
        self.traced = True

    def rest(self, seconds: float) -> None:
        self.now += round(1e9 * seconds)
        self.rested = self.now

    def step(self) -> None:
        self.log.append("step")
        tired = 1 + 0.05 * (self.now - self.rested > 26 * STEP_NS)  # at its power limit
        longer = tired * (1 + self.cost * self.on) * (1 + self.left * self.traced) * (1 + (self.fresh > 0))
        self.fresh -= 1
        drift = 1 + 0.3 * self.now / 3e11
        self.now += round(STEP_NS * longer * drift * self.draw.gauss(1, 0.02))
        self.now += STEP_NS * self.taken * (self.draw.random() < 0.05)

    def run(self, fours: int = 15, steps: int = 12, most_s: float = math.inf) -> Stretches:
        found = Stretches(
            steps,
            fours,
            lambda: self.log.append("settle"),
            self.switch,
            self.kineto,
            lambda: self.now,
            self.rest,
            random.Random(1),
            most_s=most_s,
        )
        for _ in range(100_000):
            self.step()
            found()
            if found.ended:
                return found
        raise AssertionError("it never ends")


def told(*runs: Stretches) -> dict:
    about = {"program": "p", "device": "d", "samples": 1, "records": 1}
    return burst_cost.told(
        [about | {"before_ms": run.before, "noted": run.noted, "steps_ms": run.of_steps} for run in runs]
    )


@pytest.mark.parametrize("cost", [0.0, 0.02, 0.3])
def test_what_was_planted_comes_back_in_spite_of_drift(cost: float) -> None:
    found = told(Host(cost).run())
    assert found["low"] < 1 + cost < found["high"] and found["high"] - found["low"] < 0.02
    assert found["fours"] == 15


def test_medians_of_steps_are_surer_where_others_take_the_host_now_and_then() -> None:
    host = Host(0.02)
    host.taken = 10
    found = told(host.run(fours=30))
    of_medians = found["of_medians"]
    assert of_medians["low"] < 1.02 < of_medians["high"]
    assert 5 * (of_medians["high"] - of_medians["low"]) < found["high"] - found["low"]


def test_what_kineto_leaves_behind_is_told_apart() -> None:
    found = told(Host(0.05, left=0.5).run())
    assert found["ratio"] == pytest.approx(1.05, abs=0.01)
    assert found["after"] == [pytest.approx(1.5, rel=0.1)]  # the host drifts


def test_runs_of_one_program_are_told_together() -> None:
    one, other = Host(0.02).run(fours=5), Host(0.04, seed=1).run()
    found = told(one, other)
    assert found["runs"] == 2 and found["fours"] == 20
    assert found["low"] < told(one)["ratio"] < found["ratio"] < told(other)["ratio"] < found["high"]


def test_when_time_is_out_the_four_that_has_begun_is_finished() -> None:
    host = Host(0.1)
    found = host.run(most_s=60)
    assert not host.on and 0 < len(found.noted) < 60 and len(found.noted) % 4 == 0
    assert 60 < host.now / 1e9 < 60 + 4 * 3


def test_each_four_has_two_stretches_of_either_side_and_ends_without_a_burst() -> None:
    host = Host(0.1)
    found = host.run(fours=3, steps=5)
    assert len(found.before) == BEFORE and host.traced and not host.on
    for first in range(0, 12, 4):
        assert sorted(on for on, _ in found.noted[first : first + 4]) == [False, False, True, True]
    assert host.log.count("step") == WARM_UP + (BEFORE + 12) * (SKIPPED + 5)
