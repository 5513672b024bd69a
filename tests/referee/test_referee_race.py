"""Verdicts on simulated and on recorded samples: two equal sides are never distinguished, 2 % always are."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.referee.blocks import Block, Sample, Seeds, undisturbed
from fathom.referee.pair import Settings
from fathom.referee.race import Race, comparisons, race
from fathom.referee.sides import SideError
from fathom.referee.verdict import Refusal
from fathom.timing import Ratio, compare, decide, midmean, settled
from fathom.timing.ratio import by_chance, student
from tests.support.clocks import FakeClock
from tests.support.paths import DATA

RECORDED = DATA / "referee_blocks.json"
SAMPLES = 12
Draw = Callable[[float], list[float]]


class FakeSampler:
    """Blocks from `draw`, the candidate's times `gain` as long."""

    def __init__(self, draw: Draw, gain: float, clock: FakeClock) -> None:
        self.draw, self.gain, self.clock, self.order = draw, gain, clock, list[str]()

    def block(self, side: str, seeds: Seeds, chosen: float, known: Any = None) -> Block:
        self.clock.sleep(1)
        self.order.append(side)
        return Block({"": self.draw(self.gain if side == "candidate" else 1.0)})


def run(draw: Draw, gain: float, budget_s: float = 40.0) -> tuple[Race, FakeSampler]:
    clock = FakeClock()
    sampler = FakeSampler(draw, gain, clock)
    result = race(sampler, Settings(budget_s=budget_s), iter(range(1000)), lambda *_: [], clock)
    return result, sampler


def noisy(seed: int) -> Draw:
    """A machine that drifts, has bursts of other work, and whose processes differ by half a per cent."""
    random, count = np.random.default_rng(seed), 0
    drift = random.normal(0, 2e-4)

    def draw(gain: float) -> list[float]:
        nonlocal count
        count += 1
        level = 1e6 * gain * (1 + random.normal(0, 0.004)) * (1 + drift * count)
        samples = level * (1 + np.abs(random.normal(0, 0.01, SAMPLES)))
        if random.random() < 0.15:
            samples[: SAMPLES // 4] *= 1 + random.exponential(0.3)
        return list(samples)

    return draw


def resampled(seed: int) -> Draw:
    """Blocks as they followed each other on a busy machine, from any of them on, their samples drawn anew."""
    random, blocks = np.random.default_rng(seed), json.loads(RECORDED.read_text())["blocks"]
    following = itertools.cycle(np.roll(np.arange(len(blocks)), random.integers(len(blocks))))

    def draw(gain: float) -> list[float]:
        block = blocks[next(following)]
        return list(gain * random.choice(block, len(block)))

    return draw


def held_up(seed: int) -> Draw:
    """A machine on which other work now and then takes a processor for a while: a block in four takes some
    twelve times as long, as two threads of linear algebra do that wait for each other."""
    random = np.random.default_rng(seed)

    def draw(gain: float) -> list[float]:
        longer = np.exp(random.normal(2.5, 0.8)) if random.random() < 0.25 else 1.0
        return list(1e6 * gain * longer * (1 + random.normal(0, 0.01, SAMPLES)))

    return draw


def decisions(machine: Callable[[int], Draw], gain: float, trials: int = 100) -> Counter[str]:
    return Counter(decide(run(machine(seed), gain)[0].ratio("")) for seed in range(trials))


@pytest.mark.parametrize("machine", [noisy, resampled, held_up])
def test_equal_sides_are_not_distinguished(machine: Callable[[int], Draw]) -> None:
    result = decisions(machine, 1.0)
    assert result["faster"] + result["slower"] <= 2, result


@pytest.mark.parametrize(("gain", "word"), [(0.98, "faster"), (1.02, "slower")])
def test_two_per_cent_are_detected(gain: float, word: str) -> None:
    result = decisions(noisy, gain)
    assert result[word] >= 90, result


def test_a_busy_machine_hides_two_per_cent_but_turns_nothing_round() -> None:
    """Its processes differ by 5 %: there a gain must be as large to show."""
    assert decisions(resampled, 0.98, 40)["slower"] == 0
    assert decisions(resampled, 0.92, 40)["faster"] >= 36


def test_sides_take_turns_in_going_first() -> None:
    _, sampler = run(noisy(1), 1.0)
    turns = [sampler.order[at : at + 4] for at in range(0, len(sampler.order), 4)]
    assert all(turn == ["baseline", "candidate", "candidate", "baseline"] for turn in turns)


def test_a_large_gain_needs_few_blocks_and_a_small_budget_is_kept() -> None:
    assert len(run(noisy(2), 0.5)[0].baseline) == 6
    wild = np.random.default_rng(0)
    result, _ = run(lambda gain: list(gain * np.exp(wild.normal(0, 1, 8))), 1.0, budget_s=20)
    assert 6 <= len(result.baseline) <= 10


@pytest.mark.parametrize(("cache", "rounds"), [("cold", 6), ("warm", 20)])
def test_the_condition_that_decides_has_to_settle_and_no_other(cache: Any, rounds: int) -> None:
    clock, draw = FakeClock(), np.random.default_rng(0)

    class Both(FakeSampler):
        def block(self, side: str, seeds: Seeds, chosen: float, known: Any = None) -> Block:
            self.clock.sleep(1)
            return Block({"warm": [1e6 * draw.lognormal(0, 0.5)], "cold": [1e6]})

    settings = Settings(budget_s=40, cache=cache)
    result = race(Both(lambda _: [], 1.0, clock), settings, iter(range(1000)), lambda *_: [], clock)
    assert len(result.baseline) == rounds
    assert [comparison.settled for comparison in comparisons(result, settings.margin)] == [False, True]


def test_a_side_that_fails_ends_the_race() -> None:
    class Failing(FakeSampler):
        def block(self, side: str, seeds: Seeds, chosen: float, known: Any = None) -> Block:
            if side == "candidate" and len(self.order) > 2:
                raise SideError("hangs", "it gave no answer")
            return super().block(side, seeds, chosen, known)

    clock = FakeClock()
    result = race(Failing(noisy(1), 1.0, clock), Settings(), iter(range(99)), lambda *_: [], clock)
    assert result.reasons == [Refusal("hangs", "it gave no answer")]
    assert len(result.baseline) == len(result.candidate)
    assert comparisons(result, 0.01)[0].decision == "inconclusive"


def test_both_sides_of_a_round_get_the_same_inputs() -> None:
    assert Seeds(5)("warm", 1, 2) == Seeds(5)("warm", 1, 2) != Seeds(6)("warm", 1, 2)


ratios = st.tuples(*[st.floats(0.2, 5)] * 3).map(sorted)


@given(ratios, st.floats(0.001, 0.2))
def test_the_decision_follows_from_interval_and_margin(three: list[float], margin: float) -> None:
    low, value, high = three
    result = decide(Ratio(value, low, high, 6), margin)
    assert (result == "same") == (1 - margin <= low and high <= 1 + margin)
    if result == "faster":
        assert high < 1 - margin
    if result == "slower":
        assert low > 1 + margin
    mirrored = decide(Ratio(1 / value, 1 / high, 1 / low, 6), margin)
    assert {result, mirrored} != {"faster"} and {result, mirrored} != {"slower"}


@given(ratios, st.floats(0.001, 0.2))
def test_a_wider_interval_never_decides_more(three: list[float], margin: float) -> None:
    low, value, high = three
    wide, narrow = Ratio(value, low / 2, high * 2, 6), Ratio(value, low, high, 6)
    assert decide(wide, margin) in (decide(narrow, margin), "inconclusive")


def test_too_little_decides_nothing() -> None:
    assert decide(None) == decide(Ratio(0.5, None, None, 3)) == "inconclusive"
    assert not settled(None)
    assert compare([], []) is None and compare([[]], [[1.0]]) is None
    few = compare([[1.0]] * 3, [[0.5]] * 3)
    assert few == Ratio(0.5, None, None, 3)


def test_intervals_of_ratios_cover_the_truth() -> None:
    random, values = np.random.default_rng(4), 0
    for trial in range(150):
        sides = ([[v] for v in factor * np.exp(random.normal(0, 0.02, 6))] for factor in (1.0, 0.9))
        result = compare(*sides, seed=trial)
        assert result is not None and result.low is not None and result.high is not None
        values += result.low <= 0.9 <= result.high
    assert values >= 0.94 * 150


def test_scatter_between_processes_is_in_the_interval() -> None:
    random = np.random.default_rng(5)
    quiet = [[1.0 + 1e-4 * random.normal() for _ in range(500)] for _ in range(6)]
    shifted = [[1.0 + 0.05 * random.normal()] * 500 for _ in range(6)]
    item, other = compare(quiet, quiet[::-1]), compare(shifted, shifted[::-1])
    assert item and other and item.high and item.low and other.high and other.low
    assert item.high - item.low < 0.001 < 0.05 < other.high - other.low


def test_one_pair_that_was_held_up_makes_no_gain_of_five_that_lie_on_its_side_by_chance() -> None:
    # one call against itself on two busy cores: what the bootstrap alone took for 1.6 times as fast
    logs = -0.027, -0.066, -0.046, -0.076, -2.727, -0.027
    ratio = compare([[1e6]] * 6, [[1e6 * np.exp(log)] for log in logs])
    assert ratio and ratio.high and ratio.high > 1
    assert decide(ratio) == "inconclusive"


@pytest.mark.parametrize("pairs", [5, 6, 9])
def test_the_sign_test_counts_the_outcomes_that_are_as_one_sided(pairs: int) -> None:
    every = np.array(list(itertools.product((-1.0, 1.0), repeat=pairs)))
    for outcome in every:
        as_one_sided = np.abs(every.sum(axis=1)) >= abs(outcome.sum())
        assert by_chance(outcome) == pytest.approx(as_one_sided.mean())


def test_students_quantiles_agree_with_the_table() -> None:
    for freedom, expected in ((4, 4.604), (5, 4.032), (9, 3.250), (30, 2.750)):
        assert student(0.995, freedom) == pytest.approx(expected, rel=0.02)


def test_the_midmean_is_the_mean_of_the_middle_half() -> None:
    assert midmean([1, 2, 3, 4, 5, 6, 7, 1e9]) == 4.5 and midmean([3.0]) == 3.0
    with pytest.raises(ValueError, match="no values"):
        midmean([])


def test_disturbed_samples_are_counted_unless_most_are() -> None:
    good, bad = Sample(1), Sample(9, preempted=2)
    assert undisturbed([good, good, bad]) == ([good, good], Counter({"preempted": 1}))
    assert undisturbed([good, bad, bad]) == ([good, bad, bad], Counter())
    throttled = Sample(9, reasons=0x40)
    assert undisturbed([good, throttled, Sample(1, reasons=0x4)])[1] == Counter({"throttled": 1})
