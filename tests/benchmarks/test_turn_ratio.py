"""The ratio of adjacent turns, on step times of a simulated host: what is common in time cancels."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
from cost_pairs import compared
from turn_ratio import Run, ratios_of_turns, turns_of

TURN_S, SWITCH_S, STEP_S = 0.25, 0.01, 0.0065
STEPS, CLEAN = 800, range(100, 700)
PLANTED = 1.01


class Simulated:
    """Two programs in turns: at time t all takes `host(t)` times as long, the second also `ratio` times.

    `work` is the seconds that step k of a side needs on a quiet host. `whole` has, by side and turn, the
    steps that neither its begin nor its end cut.
    """

    def __init__(
        self,
        host: Callable[[float], float] = lambda t: 1.0,
        ratio: float = PLANTED,
        first: int = 0,
        work: Callable[[int, int], float] = lambda side, k: STEP_S,
        steps: int = STEPS,
    ) -> None:
        self.host, self.steps = host, steps
        self.work = lambda side, k: work(side, k) * (ratio if side else 1.0)
        self.now, self.left = 50.0, [self.work(side, 0) for side in (0, 1)]
        self.ticks = [[48.0], [49.0]]  # both began, and waited for their turn
        self.whole: list[list[list[float]]] = [[], []]
        while any(len(ticks) <= steps for ticks in self.ticks):
            for side in (first, 1 - first):
                self.turn(side)

    def turn(self, side: int) -> None:
        ticks, until, cut = self.ticks[side], self.now + TURN_S, True
        self.whole[side].append([])
        while len(ticks) <= self.steps:
            needed = self.left[side] * self.host(self.now)
            if self.now + needed > until:
                self.left[side] *= 1 - (until - self.now) / needed
                self.now = until
                break
            self.now += needed
            if not cut:
                self.whole[side][-1].append(self.now - ticks[-1])
            cut = False
            ticks.append(self.now)
            self.left[side] = self.work(side, len(ticks) - 1)
        self.now += SWITCH_S

    def run(self, side: int) -> Run:
        ticks = self.ticks[side]
        phases = {k: "clean" if k in CLEAN else "timeline" for k in range(self.steps)} if side else {}
        return Run([after - before for before, after in pairwise(ticks)], phases, ticks[0])

    def compared(self):
        return compared(self.run(0), self.run(1), "clean")


@pytest.mark.parametrize("side", [0, 1])
def test_turns_are_found_as_they_were(side: int) -> None:
    chance = random.Random(3)
    simulated = Simulated(work=lambda side, k: STEP_S * chance.uniform(0.5, 2.0))
    result = turns_of(simulated.run(side), range(STEPS))
    expected = [statistics.median(steps) for steps in simulated.whole[side] if len(steps) >= 5]
    assert len(result) > 20  # the last ones are one, where the other side was over
    assert [turn.step_s for turn in result[:-1]] == pytest.approx(expected[: len(result) - 1])


@pytest.mark.parametrize("first", [0, 1])
def test_a_planted_percent_is_found_on_a_quiet_host(first: int) -> None:
    result = Simulated(first=first).compared()
    assert result.ratio_of_turns == pytest.approx(PLANTED, abs=1e-9)
    assert result.turns >= 14


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("slope", [-0.03, 0.03])
def test_a_slow_drift_cancels(slope: float, first: int) -> None:
    result = Simulated(lambda t: 1 + slope * (t - 50), first=first).compared()
    assert result.ratio_of_turns == pytest.approx(PLANTED, abs=0.001)
    assert abs(result.ratio - PLANTED) > 0.005


def test_noise_that_is_common_in_time_cancels() -> None:
    ratios, of_turns = [], []
    for seed in range(12):
        chance = random.Random(seed)
        waves = [(chance.uniform(2, 9), chance.uniform(0, 2 * math.pi)) for _ in range(4)]
        result = Simulated(
            lambda t, waves=waves: 1.2 + 0.04 * sum(math.sin(2 * math.pi * t / s + at) for s, at in waves),
            first=seed % 2,
            work=lambda side, k, chance=chance: STEP_S * chance.gauss(1, 0.01),
        ).compared()
        ratios.append(result.ratio)
        of_turns.append(result.ratio_of_turns)
    assert statistics.median(of_turns) == pytest.approx(PLANTED, abs=0.001)
    assert statistics.stdev(of_turns) < 0.003 < statistics.stdev(ratios) / 2


@pytest.mark.parametrize("side", [0, 1])
def test_a_step_of_several_turns_moves_no_turn_to_another_neighbour(side: int) -> None:
    def stuck(at: int, k: int) -> float:
        return 0.8 if (at, k) == (side, 150) else STEP_S

    result = Simulated(lambda t: 1 + 0.1 * (t - 50), work=stuck).compared()
    assert result.ratio_of_turns == pytest.approx(PLANTED, abs=0.001)
    assert result.turns >= 10


def test_each_turn_is_weighed_against_the_two_beside_it_or_not_at_all() -> None:
    def uneven(side: int, k: int) -> float:
        return 0.6 if (side, k) in ((0, 200), (0, 500), (1, 400)) else STEP_S * chance.uniform(0.5, 2.0)

    chance = random.Random(5)
    simulated = Simulated(work=uneven)
    result = ratios_of_turns(*(turns_of(simulated.run(side), range(STEPS)) for side in (1, 0)))
    known = [[statistics.median(s) if len(s) >= 5 else None for s in turns] for turns in simulated.whole]
    beside = zip(known[1], pairwise(known[0]), strict=False)
    ratios = [turn / statistics.fmean(two) for turn, two in beside if turn and all(two)]
    assert len(known[1]) - 4 > len(result) > 15
    sure = len(result) - 1  # the last turns are one, where the other side was over
    assert result[:sure] == pytest.approx(ratios[:sure])
    assert len(ratios) - len(result) <= 1


def test_a_turn_without_a_neighbour_is_left_out() -> None:
    simulated = Simulated(work=lambda side, k: STEP_S if side else 2 * STEP_S)
    untouched, recorded = simulated.run(0), simulated.run(1)
    untouched.steps_s = untouched.steps_s[:250]
    recorded.phases = dict.fromkeys(range(STEPS), "clean")
    said = compared(untouched, recorded, "clean")
    assert said.ratio_of_turns == pytest.approx(PLANTED / 2)
    assert said.turns < len(turns_of(recorded, range(60, 250)))


def test_steps_of_other_phases_do_not_count() -> None:
    simulated = Simulated(work=lambda side, k: STEP_S * (1.8 if side and k >= 300 else 1))
    recorded = simulated.run(1)
    recorded.phases = {k: "clean" if k < 300 else "timeline" for k in range(STEPS)}
    assert compared(simulated.run(0), recorded, "clean").ratio_of_turns == pytest.approx(PLANTED)


@pytest.mark.parametrize(("steps_a_turn", "enough"), [(4.5, False), (7.5, True)])
def test_a_turn_of_few_steps_tells_nothing(steps_a_turn: float, enough: bool) -> None:
    result = Simulated(work=lambda side, k: TURN_S / steps_a_turn).compared()
    assert (result.ratio_of_turns is not None) is enough is (result.turns > 0)
    assert result.ratio > 0


def test_without_a_clock_there_are_no_turns() -> None:
    simulated = Simulated()
    untouched = simulated.run(0)
    untouched.began_s = None
    assert compared(untouched, simulated.run(1), "clean").ratio_of_turns is None
