"""Candidates side by side: each compared with its own lane, and no lane outlives an interrupted search."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from fathom.errors import BadInputError
from fathom.recorder import Applied
from fathom.tuner import lanes_of
from fathom.tuner.lanes import Lanes
from fathom.tuner.pairing import Paired, Trial
from fathom.tuner.running import Run, Runner, Steps
from fathom.tuner.sandbox import Scratch


class Lane:
    """Stands in for a Runner on a device that takes `ns` per step."""

    def __init__(self, ns: float, ended: Callable[[], None] = lambda: None) -> None:
        self.ns, self.steps, self.ended, self.cancelled = ns, Steps(), ended, False

    def run(self, setting: Applied, patience_s: float, work: float = 1.0) -> Run:
        if setting.environment.get("BROKEN"):
            raise BadInputError("broken")
        share = float(setting.environment.get("SHARE", "1"))
        return Run("done", 1.0, [share * self.ns] * 8)

    def can_switch(self, setting: Applied) -> bool:
        return False

    def cancel(self) -> None:
        self.cancelled = True


def paired(runner: Lane) -> Paired:
    return Paired(runner, Trial(Applied()), None, 10.0)  # type: ignore[arg-type]


def trial(**environment: str) -> Trial:
    return Trial(Applied(environment=environment))


def test_candidates_are_compared_with_their_own_lane() -> None:
    lanes = Lanes([paired(Lane(100.0)), paired(Lane(170.0)), paired(Lane(90.0))])
    shares = ["0.5", "0.6", "0.7", "0.8", "0.9"]
    outcomes = lanes.measure([trial(SHARE=share) for share in shares])
    assert lanes.width == 6
    assert [outcome.log for outcome in outcomes] == pytest.approx(
        [-0.6931, -0.5108, -0.3567, -0.2231, -0.1054], abs=1e-4
    )


def test_a_failure_in_one_lane_ends_the_others() -> None:
    runners = [Lane(100.0), Lane(100.0)]
    with pytest.raises(BadInputError, match="broken"):
        Lanes([paired(runner) for runner in runners]).measure([trial(), trial(), trial(BROKEN="1")])
    assert all(runner.cancelled for runner in runners)


def test_a_run_that_is_cancelled_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "sleeps.py").write_text("import time\ntime.sleep(60)\n")
    scratch = Scratch(tmp_path / "work", tmp_path / "copy")
    runner = Runner(
        [sys.executable, "sleeps.py"], scratch, tmp_path / "lane", Steps(), environment=os.environ
    )
    runner.cancel()
    began = monotonic()
    assert runner.run(Applied(), 60.0).status == "too slow"
    assert monotonic() - began < 30


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["0", "x"], "not 'x'"),
        (["0", "0"], "GPU 0 is given 2 times"),
        (["0,1", "2"], "different numbers"),
        ([""], "not ''"),
    ],
)
def test_lanes_that_cannot_be_are_refused(given: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        lanes_of(given)


def test_lanes_take_numbers_and_names() -> None:
    assert lanes_of(["0, 1", "2,3"]) == ("0,1", "2,3")
    assert lanes_of(["GPU-3f2a-11", "MIG-ab/1/0"]) == ("GPU-3f2a-11", "MIG-ab/1/0")
    assert lanes_of([]) == ()
