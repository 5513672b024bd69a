"""Both sides of a proof whose settings are switched within runs, beside runs that do not switch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fathom.recorder import Applied
from fathom.referee import BASELINE, CANDIDATE, SideError
from fathom.tuner.pairing import Paired, Trial
from fathom.tuner.running import Run, Steps
from fathom.tuner.sides import LONGER, RESULTS, WITHIN, Switched

TRIAL = Trial(Applied(acts={"autocast": "bfloat16"}))
PAIRS = 3


class Stand:
    """Runs take `alone` of the baseline's step, blocks that are switched `within`; results are `loss`."""

    switches, steps = None, Steps()

    def __init__(self, alone: float = 0.8, within: float = 0.8, crash: int = 99) -> None:
        self.alone, self.within, self.crash = alone, within, crash
        self.ran: list[str] = []

    def run(self, setting: Applied, *_: Any) -> Run:
        side = CANDIDATE if setting.acts else BASELINE
        self.ran.append(side)
        if setting.acts and self.ran.count(CANDIDATE) >= self.crash:
            return Run("crashed", 2.0, why="planted")
        factor = self.alone if setting.acts else 1.0
        return Run("done", 2.0, [10e6 * factor] * 4, {"loss": np.full(3, factor)})

    def switched(self, *_: Any) -> tuple[Run, Run]:
        self.ran.append("both")
        return Run("done", 3.0, [10e6] * 6), Run("done", 3.0, [10e6 * self.within] * 6)


def proof(stand: Stand, left_s: float = 1000.0) -> Switched:
    paired = Paired(stand, Trial(Applied()), None, 10.0)  # type: ignore[arg-type]
    paired.runs = [stand.run(Applied()), stand.run(Applied())]
    stand.ran.clear()
    return Switched(paired, TRIAL, lambda: left_s)


def pairs(of: Switched) -> list[float]:
    """Return the ratio of each pair; the sides take turns in going first."""
    ratios = []
    for number in range(PAIRS):
        order = (BASELINE, CANDIDATE) if number % 2 == 0 else (CANDIDATE, BASELINE)
        samples = {side: of.run(side)[0] for side in order}
        ratios.append(float(np.mean(samples[CANDIDATE]) / np.mean(samples[BASELINE])))
    return ratios


def test_pairs_are_of_runs_that_switch_and_results_of_fresh_ones() -> None:
    stand = Stand()
    made = proof(stand)
    assert pairs(made) == pytest.approx([0.8] * PAIRS)
    assert stand.ran == [BASELINE, *[CANDIDATE] * RESULTS, *["both"] * PAIRS]
    made.close()
    assert made.notes == [WITHIN]
    assert [made.run(side)[1]["loss"][0] for side in (BASELINE, CANDIDATE)] == [1.0, 0.8]


def test_separate_runs_that_are_slower_are_the_proof() -> None:
    stand = Stand(alone=0.99, within=0.5)
    made = proof(stand)
    assert pairs(made)[1:] == pytest.approx([0.99] * (PAIRS - 1))
    made.close()
    assert len(made.notes) == 1 and "separate runs" in made.notes[0] and stand.ran.count("both") == 1


def test_without_time_for_separate_runs_the_candidate_gets_no_verdict() -> None:
    stand = Stand(alone=0.99, within=0.5)
    with pytest.raises(SideError) as failed:
        pairs(proof(stand, left_s=3.0))
    assert failed.value.code == "no-time" and LONGER in str(failed.value)
    assert stand.ran.count("both") == 1


def test_a_crash_in_a_later_separate_run_is_the_candidates() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SideError, match="planted") as failed:
            pairs(proof(Stand(alone=0.99, within=0.5, crash=RESULTS + 1)))
    assert failed.value.code == "raises"
