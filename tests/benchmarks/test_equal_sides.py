"""The proofs of ten kernels against themselves and with a planted 2 %: recorded once, judged anew here."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.referee import equal_sides
from benchmarks.referee.equal_sides import EQUAL, FASTER, SLOWER
from fathom.errors import BadInputError
from fathom.referee import Pair, Settings, Verdict
from fathom.referee.blocks import Block, Seeds
from fathom.referee.race import Race, race
from fathom.timing import decide
from tests.support.clocks import FakeClock

TRIALS, ROUNDS = 200, 12
Row = dict[str, Any]


class Replayed:
    """A sampler of rounds that were recorded one after another, from any of them on, samples drawn anew.

    `swapped`: what was the candidate is the baseline now."""

    def __init__(self, rounds: list[tuple[list[int], list[int]]], random: Any, clock: FakeClock) -> None:
        self.rounds, self.random, self.clock = rounds, random, clock
        self.count, self.swapped = 2 * int(random.integers(len(rounds))), bool(random.integers(2))

    def block(self, side: str, seeds: Seeds, chosen: float, known: Any = None) -> Block:
        self.clock.sleep(1)
        pair = self.rounds[self.count // 2 % len(self.rounds)]
        self.count += 1
        samples = pair[(side == "candidate") != self.swapped]
        return Block({"": list(self.random.choice(samples, len(samples)))})


def rounds(rows: list[Row], kernel: str, planted: bool) -> list[tuple[list[int], list[int]]]:
    """The longer side is the second, wherever it was when they were recorded."""
    own = [row for row in rows if row["kernel"] == kernel and (row["planted"] != EQUAL) == planted]
    pairs = [zip(row["baseline"], row["candidate"], strict=True) for row in own]
    turned = [row["planted"] == FASTER for row in own]
    return [pair[::-1] if turn else pair for turn, each in zip(turned, pairs, strict=True) for pair in each]


def most(rows: list[Row], kernel: str) -> int:
    """Rounds of a race at most: those of the kernel's longest proof, which its budget ended, or more."""
    return max(ROUNDS, *(len(row["baseline"]) for row in rows if row["kernel"] == kernel))


def judged(rows: list[Row], planted: bool, names: tuple[str, ...] = equal_sides.NAMES) -> float:
    """Of a hundred races over those samples, how many end as they have to."""
    good = 0
    known = [(rounds(rows, name, planted), Settings(budget_s=2 * most(rows, name))) for name in names]
    for seed in range(TRIALS):
        clock, random = FakeClock(), np.random.default_rng(seed)
        own, settings = known[seed % len(names)]
        sampler = Replayed(own, random, clock)
        ratio = race(sampler, settings, iter(range(1000)), lambda *_: [], clock).ratio("")
        wanted = (FASTER if sampler.swapped else SLOWER,) if planted else ("same", "inconclusive")
        good += decide(ratio) in wanted
    return 100 * good / TRIALS


needs_proofs = pytest.mark.skipif(not equal_sides.RESULT.exists(), reason="no proofs of a GPU are kept")


@needs_proofs
@pytest.mark.parametrize(("planted", "least"), [(False, 98), (True, 90)])
def test_samples_of_a_gpu_are_judged_as_they_have_to(planted: bool, least: int) -> None:
    result = json.loads(equal_sides.RESULT.read_text())["proofs"]
    assert {row["kernel"] for row in result} == set(equal_sides.NAMES)
    assert judged(result, planted) >= least


@needs_proofs
def test_the_proofs_themselves_ended_as_they_have_to() -> None:
    result = json.loads(equal_sides.RESULT.read_text())["proofs"]
    for equal, least in ((True, 0.98), (False, 0.9)):
        asked = [row for row in result if (row["planted"] == EQUAL) == equal]
        assert sum(map(equal_sides.right, asked)) >= least * len(asked)


EARLIER = equal_sides.RESULT.with_stem("equal_sides_earlier")
BOUND_BY_MEMORY = ("elementwise", "reduction", "transposed_copy", "gather")  # where their pages lie matters


def test_earlier_samples_of_a_gpu_distinguish_no_equal_sides_in_any_place() -> None:
    result = json.loads(EARLIER.read_text())["proofs"]
    assert all(equal_sides.right(row) for row in result if row["planted"] == EQUAL)
    for places in {row["places"] for row in result}:
        own = [row for row in result if row["places"] == places]
        names = tuple(sorted({row["kernel"] for row in own if row["planted"] == EQUAL}))
        assert judged(own, False, names) >= 98


def test_earlier_samples_of_a_gpu_tell_two_per_cent_of_kernels_that_compute() -> None:
    proofs = [row for row in json.loads(EARLIER.read_text())["proofs"] if row["places"] == "one"]
    names = tuple(name for name in equal_sides.NAMES if name not in BOUND_BY_MEMORY)
    assert judged(proofs, True, names) >= 90


def simulated(scatter: float, gain: float) -> list[Row]:
    """Proofs of every kernel whose processes differ by `scatter`, the longer form `gain` as long."""
    random = np.random.default_rng(1)

    def block(factor: float) -> list[int]:
        level = 1e6 * factor * (1 + random.normal(0, scatter))
        return [round(level * (1 + abs(random.normal(0, 0.001)))) for _ in range(8)]

    long = {EQUAL: (1.0, 1.0), SLOWER: (1.0, gain), FASTER: (gain, 1.0)}
    return [
        {"kernel": trial.kernel, "planted": trial.planted}
        | {
            side: [block(factor) for _ in range(6)]
            for side, factor in zip(("baseline", "candidate"), long[trial.planted], strict=True)
        }
        for trial in equal_sides.trials()
    ]


def test_judging_anew_finds_what_is_there_and_nothing_else() -> None:
    result = simulated(0.002, 1.02)
    assert judged(result, False) >= 98 and judged(result, True) >= 90
    assert judged(simulated(0.002, 1.0), True) == 0
    assert judged(simulated(0.05, 1.02), True) < 50


def test_ten_kernels_ten_times_and_as_often_with_two_per_cent_on_either_side() -> None:
    every = equal_sides.trials()
    assert len({item.file for item in every}) == len(every) == 200
    for kernel in equal_sides.NAMES:
        kinds = [item.planted for item in every if item.kernel == kernel]
        assert [kinds.count(kind) for kind in (EQUAL, SLOWER, FASTER)] == [10, 5, 5]


def test_a_kernels_longer_form_computes_the_same_with_one_launch_to_fifty_more() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.referee import equal_kernels
    from fathom.lab import Draw

    assert tuple(equal_kernels.KERNELS) == equal_sides.NAMES
    for kernel in equal_kernels.KERNELS.values():
        launches = list[int]()

        def counted(*arguments: Any, once: Any = kernel.once, launches: list[int] = launches) -> Any:
            launches.append(1)
            return once(*arguments)

        watched = equal_kernels.Kernel(counted, kernel.draw)
        arguments = kernel.draw(Draw(1, "cpu"))
        result = watched.plain(*arguments)
        fifty = len(launches)
        assert torch.equal(result, watched.longer(*arguments))
        assert (fifty, len(launches) - fifty) == (50, 51)


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(
        out=tmp_path, minutes=1.0, share="0/1", times=1, budget=0.0, block=0.01, limit=60.0, jobs=2
    )


def run(options: argparse.Namespace, fails: str = "") -> tuple[int, list[str]]:
    """Record with proofs that reach their verdict at once, but for the first of one kernel."""
    calls = list[str]()

    def prove(pair: Pair, settings: Settings) -> Verdict:
        calls.append(pair.name)
        if pair.name == fails and calls.count(fails) == 1:
            raise BadInputError("The baseline cannot be measured: out of memory.")
        taken = [Block({"warm": [1.0], "cold": [2.4, 2.6]})]
        settings.keep(Race(taken, taken))
        return Verdict("same", 1.0, [0.999, 1.001], [], 0.01)

    return equal_sides.record(options, prove), calls


def test_it_goes_on_where_it_was_and_repeats_what_failed(options: argparse.Namespace) -> None:
    failed, first = run(options, fails="softmax")
    assert failed == 1 and len(first) == 20 and len(equal_sides.rows(options.out)) == 19
    assert run(options) == (0, ["softmax"]) and run(options) == (0, [])
    rows = equal_sides.rows(options.out)
    assert len(rows) == 20 and rows[0]["baseline"] == [[2, 3]]
    said = equal_sides.summary(rows)
    assert "equal sides not distinguished: 10 of 10" in said and "2 % detected: 0 of 10" in said


def test_none_is_begun_after_the_time_and_shares_are_the_whole(options: argparse.Namespace) -> None:
    options.minutes = 0
    assert run(options) == (0, [])
    options.minutes, seen = 1, list[str]()
    for options.share in ("0/3", "1/3", "2/3"):
        seen += run(options)[1]
    assert sorted(seen) == sorted(2 * equal_sides.NAMES)
