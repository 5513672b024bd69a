"""Cost of recording, by stretches with and without it in one process."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
import stretches
from launcher import RECORDING, records


def run(steps: int, cost: float, seed: int, noise: float = 0.1) -> dict:
    """Steps of a host that drifts by a half and is noisy, `cost` of a step longer while Fathom is on."""
    draw, order = random.Random(seed), stretches.orders(seed)
    on, taken, now = [], [], True
    for step in range(steps):
        taken.append((1 + 0.5 * step / steps) * (1 + cost * now) * draw.gauss(1, noise) / 100)
        on.append(now)
        if step + 1 >= stretches.WARM_UP and (step + 1 - stretches.WARM_UP) % stretches.STRETCH == 0:
            now = next(order)
    return {"steps_s": taken, "on": on}


@pytest.mark.parametrize("cost", [0.0, 0.01, 0.05])
def test_what_was_planted_comes_back_in_spite_of_drift_and_noise(cost):
    result = stretches.Ratio.of([run(5000, cost, seed) for seed in range(3)])
    assert result.low < 1 + cost < result.high
    assert result.high - result.low < 0.02
    assert result.mean_low < 1 + cost < result.mean_high


def test_each_four_has_two_stretches_of_either_side_and_no_step_after_a_switch():
    row = run(1000, 0.0, seed=3)
    row["steps_s"] = [float(step) for step in range(1000)]
    result = stretches.quads(row)
    assert len(result) == (1000 - stretches.WARM_UP) // (4 * stretches.STRETCH)
    for quad in result:
        assert len(quad.on) == len(quad.off) == 2 * (stretches.STRETCH - stretches.SKIPPED)
        for side, with_fathom in ((quad.on, True), (quad.off, False)):
            assert all(row["on"][int(step)] is with_fathom for step in side)
            assert all(
                (int(step) - stretches.WARM_UP) % stretches.STRETCH >= stretches.SKIPPED for step in side
            )


def test_a_run_too_short_for_a_four_is_said_to_be():
    with pytest.raises(ValueError, match="long enough"):
        stretches.Ratio.of([run(stretches.WARM_UP + 4 * stretches.STRETCH - 1, 0.0, seed=1)])


@pytest.mark.programs
@pytest.mark.parametrize("sham", [False, True])
def test_a_program_is_recorded_in_the_stretches_that_say_so_and_in_no_others(tmp_path, sham):
    steps = stretches.WARM_UP + 8 * stretches.STRETCH
    command = [sys.executable, stretches.__file__, "record", "launch_bound", "--runs", "1"]
    command += ["--out", str(tmp_path), *(["--sham"] if sham else [])]
    command += ["--", "--steps", str(steps), "--layers", "1", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, (tmp_path / "stretches.jsonl").read_text().splitlines())
    assert row["phases"] == ["clean"] and len(row["on"]) == len(row["steps_s"]) == steps
    assert sham or sum(row["on"]) < steps
    marks = sum(len(record["ns"]) for record in records(tmp_path / RECORDING) if record.get("t") == "marks")
    expected = steps if sham else sum(row["on"])
    assert abs(marks - expected) <= 3  # the first of a program and of a stretch may open no step
