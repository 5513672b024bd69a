"""The host's pace: the search agrees with trying every pace, and hidden hosts have a usual one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.replay import Replay, parse
from fathom.analysis.replay.lengths import ReplayedSteps
from fathom.analysis.replay.model import PACES, QUICKEST, UNDISTURBED, pace_for
from tests.support.simulator import Do, Machine, simulate
from tests.support.timelines import Timeline, store_of

US = 1000

RISES = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=5)
SLOPES = st.lists(st.floats(0.0, 30.0), min_size=5, max_size=5)


@given(RISES, SLOPES, st.floats(0.0, 1.0))
def test_the_least_pace_that_reaches_the_goal(rises: list[float], slopes: list[float], share: float) -> None:
    def length(pace: float) -> float:
        """The longest of several paths, each linear in the pace, as in a replay."""
        return max(rise + slope * pace for rise, slope in zip(rises, slopes, strict=False))

    lengths = np.array([length(pace) for pace in PACES])
    goal = lengths[0] + share * (lengths[-1] - lengths[0])
    asked: list[float] = []

    def counted(pace: float) -> float:
        asked.append(pace)
        return length(pace)

    assert pace_for(goal, counted, float(lengths[-1])) == PACES[max(int(np.argmax(lengths >= goal)), 1)]
    assert len(asked) <= 24


def launching(kernel_us: int, clean_us: int) -> Timeline:
    """20 steps in which an op takes 10 µs for each of 100 launches, and clean steps of another length."""
    made, took = Timeline(), max(kernel_us, 10) * US
    made.steps(*range(0, 21 * 100 * took, 100 * took))
    for step in range(20):
        for number in range(100):
            at, device = step * 100 * took + number * 10 * US, (step * 100 + number) * took
            made.op("aten::add", at, at + 9 * US)
            made.kernel(device + 8 * US, device + (8 + kernel_us) * US, at + 5 * US, name="add")
    made.phase = "clean"
    made.steps(*range(10**10, 10**10 + 21 * clean_us * US, clean_us * US))
    return made


@pytest.mark.parametrize(
    ("facts", "pace"),
    [({"timeline": "cupti"}, UNDISTURBED), ({"timeline": "kineto"}, QUICKEST), ({}, QUICKEST)],
)
def test_a_host_that_the_device_hides_has_the_usual_pace(
    facts: dict[str, str], pace: float, tmp_path: Path
) -> None:
    """Kernels of 40 µs: no step reveals how long a launch takes without a profiler."""
    store = store_of(tmp_path / "s.fathom", launching(kernel_us=40, clean_us=4000))
    store.manifest.ranks[0].facts.update(facts)
    assert ReplayedSteps(store).pace == pace


def test_a_host_that_is_waited_for_shows_its_pace(tmp_path: Path) -> None:
    """Kernels of 2 µs: clean steps take 0.7 of the recorded ones, however those were recorded."""
    store = store_of(tmp_path / "s.fathom", launching(kernel_us=2, clean_us=700))
    store.manifest.ranks[0].facts["timeline"] = "cupti"
    assert ReplayedSteps(store).pace == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize(("kernel_us", "pace"), [(7, 0.8), (5, 0.6)])
def test_a_host_that_only_clean_steps_hide_is_as_slow_as_they_allow(
    kernel_us: int, pace: float, tmp_path: Path
) -> None:
    """Launches of 10 µs delay recorded steps. In clean ones, kernels follow each other after 1 µs."""
    store = store_of(tmp_path / "s.fathom", launching(kernel_us=kernel_us, clean_us=100 * kernel_us))
    store.manifest.ranks[0].facts["timeline"] = "cupti"
    assert ReplayedSteps(store).pace == pytest.approx(pace, abs=0.03)


@pytest.mark.parametrize("error", [-0.015, 0.0, 0.015])
def test_a_host_that_is_nearly_hidden_leaves_the_gain_uncertain(error: float, tmp_path: Path) -> None:
    """The device waits for 30 launches, and the host for 100 kernels; launches take 0.6 of the recorded time.

    Faster kernels make the step wait for all launches. A small error of the clean step changes the pace much.
    """
    names = ("softmax", "gemm")
    short, long = Do("launch", 8 * US, 2 * US, names[0]), Do("launch", 8 * US, 12 * US, names[1])

    def run(host: float, kernels: float) -> Timeline:
        factors = {"op_factor": dict.fromkeys(names, host), "kernel_factor": dict.fromkeys(names, kernels)}
        machine = Machine(latency=500, launch=2 * US, **factors)
        return simulate([short] * 30 + [long] * 100 + [Do("sync")], machine, 8)

    def length(made: Timeline) -> float:
        return float(np.median(np.diff(made.frames()["steps"]["mark_ns"].drop_nulls())))

    made, clean = run(1.0, 1.0), length(run(0.6, 1.0))
    made.phase = "clean"
    made.steps(*(2 * 10**18 + round(number * clean * (1 + error)) for number in range(21)))
    result = Replay(store_of(tmp_path / "s.fathom", made)).predict([parse("all-kernels=0.3")]).clean_gain
    assert result is not None
    assert result.low <= (clean - length(run(0.6, 0.3))) / 1e6 <= result.high
