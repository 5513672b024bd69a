"""What bursts with counters cost, by stretches with and without them in one process."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "cost"))
import burst_cost
from burst_cost import PLAIN, Stretches

STEP_NS = 10_000_000


class Host:
    """A program whose steps take `cost` more inside bursts and `left` more after Kineto. Its host drifts."""

    def __init__(self, cost: float, left: float = 0.0, seed: int = 0) -> None:
        self.cost, self.left, self.draw = cost, left, random.Random(seed)
        self.now, self.on, self.traced, self.rested = 0, False, False, 0
        self.log: list[str] = []
        self.taken = 0  # steps that something else on the host takes now and then

    def arm(self) -> None:
        assert not self.on and self.log[-1] == "settle"
        self.log.append("arm")
        self.pause(50 * STEP_NS)

    def __call__(self, on: bool) -> None:
        assert on != self.on
        self.log.append("on" if on else "off")
        self.on = on

    def check(self) -> None:
        self.log.append("check")

    def kineto(self) -> None:
        assert not self.on and not self.traced
        self.traced = True

    def rest(self, seconds: float) -> None:
        self.pause(round(1e9 * seconds))

    def pause(self, ns: int) -> None:
        self.now += ns
        self.rested = self.now

    def step(self) -> None:
        self.log.append("step")
        tired = 1 + 0.05 * (self.now - self.rested > 26 * STEP_NS)  # at its power limit
        longer = tired * (1 + self.cost * self.on) * (1 + self.left * self.traced)
        drift = 1 + 0.3 * self.now / 3e11
        self.now += round(STEP_NS * longer * drift * self.draw.gauss(1, 0.02))
        self.now += STEP_NS * self.taken * (self.draw.random() < 0.05)

    def run(self, fours: int = 15, steps: int = 12, **limits: float) -> Stretches:
        found = Stretches(
            steps,
            fours,
            lambda: self.log.append("settle"),
            self,
            self.kineto,
            lambda: self.now,
            self.rest,
            random.Random(1),
            **limits,
        )
        for _ in range(100_000):
            self.step()
            found()
            if found.ended:
                return found
        raise AssertionError("it never ends")


def told(*runs: Stretches) -> dict:
    about = {"program": "p", "device": "d", "only": ["sampling"], "samples": 1, "records": 1}
    return burst_cost.told(
        [
            about
            | {
                "before_ms": run.before,
                "between_ms": run.between,
                "noted": run.noted,
                "steps_ms": run.of_steps,
            }
            for run in runs
        ]
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
    found = host.run(most_s=10)
    assert not host.on and 0 < len(found.noted) < 60 and len(found.noted) % 4 == 0
    assert 10 < host.now / 1e9 < 10 + 4


def test_the_first_burst_is_looked_at_before_anything_counts() -> None:
    host = Host(0.1)
    host.run(fours=2)
    words = [word for word in host.log if word not in ("settle", "step")]
    assert words == ["arm", "on", "off", "check"] + 4 * ["arm", "on", "off"]


def test_a_rest_before_every_stretch_makes_up_for_the_limit_of_power() -> None:
    host = Host(0.02)
    found = told(host.run(rest_s=1.5, warm_s=0.0))
    assert found["low"] < 1.02 < found["high"] and found["high"] - found["low"] < 0.02


def test_each_four_has_two_stretches_of_either_side_and_ends_without_a_burst() -> None:
    host = Host(0.1)
    found = host.run(fours=3, steps=5)
    assert len(found.before) == len(found.between) == PLAIN and host.traced and not host.on
    for first in range(0, 12, 4):
        assert sorted(on for on, _ in found.noted[first : first + 4]) == [False, False, True, True]
    bursts = [part.split(" off")[0] for part in " ".join(host.log).split(" on")[1:]]
    assert {part.count("step") for part in bursts} == {5} and len(bursts) == 1 + 2 * 3
