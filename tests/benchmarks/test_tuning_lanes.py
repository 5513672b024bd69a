"""Searches side by side: every lane has its own cores, and every program is searched twice."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.tuning.lanes import lanes_of, share


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


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_program_is_searched_twice_and_lanes_have_equal_shares(count: int) -> None:
    lanes = lanes_of(Path(), (), 1, range(count))
    share(lanes, ["gpt", "recommender", "speech"])
    jobs = Counter(job for lane in lanes for job in lane.jobs)
    assert jobs == Counter((name, n) for name in ("gpt", "recommender", "speech") for n in (1, 2))
    assert max(len(lane.jobs) for lane in lanes) - min(len(lane.jobs) for lane in lanes) <= 1


def test_a_lane_without_a_gpu_hides_those_of_the_machine() -> None:
    gpu, cpu = lanes_of(Path("out"), ["3"], 2, range(4))
    assert gpu.around["CUDA_VISIBLE_DEVICES"] == "3"
    assert cpu.around["CUDA_VISIBLE_DEVICES"] == ""
    assert gpu.around["FATHOM_HOME"] != cpu.around["FATHOM_HOME"]
