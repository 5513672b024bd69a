"""Cost of bursts with counters, by the stretches of clean steps beside each."""

from __future__ import annotations

import json
import random
import sys
from itertools import chain

import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
import burst_cost
from burst_cost import BETWEEN, PLAIN, Course

STEP_NS = 10_000_000


class Host:
    """A program whose steps take `cost` more inside bursts and `left` more after Kineto. Its host drifts."""

    def __init__(self, cost: float, left: float = 0.0, seed: int = 0) -> None:
        self.cost, self.left, self.draw = cost, left, random.Random(seed)
        self.now, self.on, self.traced, self.rested, self.armed = 0, False, False, 0, -(10**12)
        self.log: list[str] = []
        self.slow = 0.0  # how much longer steps take for a second after arming
        self.taken = 0  # steps that something else on the host takes now and then

    def arm(self) -> None:
        assert not self.on and self.log[-1] == "settle"
        self.log.append("arm")
        self.pause(50 * STEP_NS)
        self.armed = self.now

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
        longer *= 1 + self.slow * (self.now - self.armed < 1e9)
        self.now += round(STEP_NS * longer * drift * self.draw.gauss(1, 0.02))
        self.now += STEP_NS * self.taken * (self.draw.random() < 0.05)

    def run(self, most: int = 60, steps: int = 12, **limits: float) -> Course:
        course = Course(
            steps,
            most,
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
            course()
            if course.ended:
                return course
        raise AssertionError("it never ends")


def reported(*runs: Course) -> dict:
    about = {"program": "p", "device": "d", "only": ["sampling"], "samples": 1, "records": 1}
    return burst_cost.reported(
        [
            about
            | {
                "before_ms": run.before,
                "between_ms": run.between,
                "tried": json.loads(json.dumps(run.tried)),
            }
            for run in runs
        ]
    )


@pytest.mark.parametrize("cost", [0.0, 0.02, 0.3])
def test_what_was_planted_comes_back_in_spite_of_drift(cost: float) -> None:
    result = reported(Host(cost).run())
    assert result["low"] < 1 + cost < result["high"] and result["high"] - result["low"] < 0.01
    assert result["sham"]["ratio"] == pytest.approx(1, abs=0.005)
    assert result["over_sham"]["low"] < 1 + cost < result["over_sham"]["high"]
    assert result["bursts"] + result["shams"] == 60 and 5 < result["shams"] < 25


def test_medians_of_steps_are_surer_where_others_take_the_host_now_and_then() -> None:
    host = Host(0.02)
    host.taken = 10
    result = reported(host.run(most=120))
    of_medians = result["of_medians"]
    assert of_medians["low"] < 1.02 < of_medians["high"]
    assert 5 * (of_medians["high"] - of_medians["low"]) < result["high"] - result["low"]


def test_steps_after_kineto_are_reported_separately() -> None:
    result = reported(Host(0.05, left=0.5).run())
    assert result["ratio"] == pytest.approx(1.05, abs=0.01)
    assert result["after"] == [pytest.approx(1.5, rel=0.1)]  # the host drifts


def test_runs_of_one_program_are_reported_as_one() -> None:
    item, other = Host(0.02).run(20), Host(0.04, seed=1).run(20)
    result = reported(item, other)
    assert result["runs"] == 2 and result["bursts"] + result["shams"] == 40
    assert (
        result["low"] < reported(item)["ratio"] < result["ratio"] < reported(other)["ratio"] < result["high"]
    )


def test_a_run_too_short_for_a_sham_says_so() -> None:
    run = Host(0.1).run(8)
    run.tried = [item for item in run.tried if not item.sham][:1]
    result = reported(run)
    assert result["bursts"] == 1 and result["sham"] is None and result["over_sham"] is None


def test_when_time_is_out_what_has_begun_is_finished() -> None:
    host = Host(0.1)
    result = host.run(most_s=10)
    assert not host.on and 0 < len(result.tried) < 15
    assert 10 < host.now / 1e9 < 10 + 2


def test_the_first_burst_is_looked_at_before_anything_counts() -> None:
    host = Host(0.1)
    shams = [item.sham for item in host.run(8).tried]
    words = [word for word in host.log if word not in ("settle", "step")]
    rest = [["arm"] if sham else ["arm", "on", "off"] for sham in shams]
    assert words == ["arm", "on", "off", "check", *chain(*rest)] and set(shams) == {True, False}


def test_what_arming_does_to_the_host_counts_for_neither_side() -> None:
    host = Host(0.02)
    host.slow = 0.4
    result = reported(host.run(240, steps=8))
    assert result["over_sham"]["low"] < 1.02 < result["over_sham"]["high"]
    assert result["over_sham"]["high"] - result["over_sham"]["low"] < 0.04


def test_what_the_limit_of_power_does_over_a_burst_shams_show_too() -> None:
    host = Host(0.02)
    result = reported(host.run(240, rest_s=1.5, warm_s=0.0))
    assert not result["low"] < 1.02 < result["high"]  # steps get longer 26 steps after a rest
    assert result["over_sham"]["low"] < 1.02 < result["over_sham"]["high"]


def test_a_burst_has_a_stretch_of_clean_steps_on_either_side_and_ends_itself() -> None:
    host = Host(0.1)
    result = host.run(4, steps=5)
    assert len(result.before) == len(result.between) == PLAIN and host.traced and not host.on
    log = " ".join(word for word in host.log if word != "settle")
    after = [part.split(" off")[1].count("step") for part in log.split(" on")[2:]]
    inside = [part.split(" off")[0].count("step") for part in log.split(" on")[1:]]
    assert set(inside) == {5} and min(after) >= BETWEEN + 5
    assert all(len(side.steps) == 5 for item in result.tried for side in item[1:])
