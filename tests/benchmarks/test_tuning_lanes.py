"""Searches side by side: every lane has its own cores, and every program is searched twice."""

from __future__ import annotations

import json
from collections import deque
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tuning import lanes as lanes_module
from benchmarks.tuning.lanes import Budgets, Results, about, compared, lanes_of
from fathom.tuner.running import Run


@pytest.mark.parametrize(("gpus", "cores"), [(0, 8), (2, 32), (4, 64), (4, 10)])
def test_lanes_share_neither_cores_nor_gpus(gpus: int, cores: int) -> None:
    names = [str(number) for number in range(gpus)]
    lanes = lanes_of(Path(), names, 4, range(cores))
    assert len(lanes) == cores // 4
    for first, other in combinations(lanes, 2):
        assert not first.cores & other.cores
        assert not set(first.gpus) & set(other.gpus)
    on_gpu = [gpu for lane in lanes for gpu in lane.gpus]
    assert on_gpu == names[: len(lanes)]


@pytest.mark.parametrize(("width", "cpu_width"), [(8, 6), (4, 8), (16, 1)])
def test_lanes_without_a_gpu_have_their_width(width: int, cpu_width: int) -> None:
    lanes = lanes_of(Path(), ["0", "1"], width, range(64), cpu_width)
    assert [len(lane.cores) for lane in lanes if lane.gpus] == [width, width]
    widths = [len(lane.cores) for lane in lanes if not lane.gpus]
    assert widths == [cpu_width] * ((64 - 2 * width) // cpu_width)
    assert sum(len(lane.cores) for lane in lanes) == len(frozenset().union(*(lane.cores for lane in lanes)))


def test_every_program_is_searched_twice_long_ones_first() -> None:
    budgets = Budgets(300.0, {"frames": 420.0, "tables": 230.0})
    jobs = list(budgets.jobs(["gpt", "tables", "frames"]))
    assert jobs == [(name, number) for number in (1, 2) for name in ("frames", "gpt", "tables")]
    assert [budgets.of(name) for name, _ in jobs[:3]] == [420.0, 300.0, 230.0]


def test_a_lane_without_a_gpu_hides_those_of_the_machine() -> None:
    gpu, cpu = lanes_of(Path("out"), ["3"], 2, range(4))
    assert gpu.around["CUDA_VISIBLE_DEVICES"] == "3"
    assert cpu.around["CUDA_VISIBLE_DEVICES"] == ""
    assert gpu.around["FATHOM_HOME"] != cpu.around["FATHOM_HOME"]


def test_forms_are_compared_by_medians_and_by_the_time_to_their_first_timed_step() -> None:
    slow, quick = Run("done", 5.0, samples=[20e6] * 8), Run("done", 33.0, samples=[5e6] * 8)
    rows = {
        "as it is": [about(run) for run in (slow, Run("done", 9.0, samples=[40e6]), slow)],
        "tuned": [about(quick)],
        "max-autotune": [about(Run("too slow", 90.0, why="planted"))],
    }
    known = compared(rows)
    assert known["as it is"]["ms"] == 20 and known["as it is"]["ratio"] == 0.25
    assert known["as it is"]["first_start_s"] == 3.0 and known["tuned"]["first_start_s"] == 32.5
    assert known["max-autotune"]["ratio"] is None and known["max-autotune"]["first_s"] == 90.0


def test_a_search_whose_budget_was_too_short_is_repeated_with_a_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def tuned(_name: str, _program: Any, budget: str, *_: Any, **__: Any) -> dict[str, Any]:
        asked.append(budget)
        return {"failed": "fathom: The budget is too short: a run takes 20 s" if len(asked) == 1 else "other"}

    monkeypatch.setattr(lanes_module, "tuned", tuned)
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    lane = lanes_of(tmp_path, (), 1, [0])[0]
    lane.run(deque([("gpt", 1)]), Budgets(100, {}), 0, Results(tmp_path / "cpu"))
    assert asked == ["100s", "160s"]
    kept = json.loads((tmp_path / "cpu" / "tuning.json").read_text())
    assert kept["programs"]["gpt"] == {"failed": "other"}


def test_a_search_with_a_result_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "tuned", lambda *_, **__: {"failed": "searched again"})
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
    lane = lanes_of(tmp_path, (), 1, [0])[0]
    known = {"settings": [], "verdict": None, "tried": [], "runs": 5, "load": 0.1}
    known |= {"seconds": 9.0, "budget_s": 9.0}
    lane.out.mkdir(parents=True)
    (lane.out / "gpt-1.json").write_text(json.dumps(known))
    lane.run(deque([("gpt", 1)]), Budgets(100, {}), 0, Results(lane.out))
    kept = json.loads((lane.out / "tuning.json").read_text())
    assert kept["programs"]["gpt"]["ratios"] == [1.0]
