"""A proof says how far it has come and what it needs; proofs on one GPU take turns; bars show the ratio."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from fathom.referee.queue import first_gpu, one_at_a_time
from fathom.referee.race import needed, outlook
from fathom.referee.verdict import Comparison, Timing, Verdict
from fathom.report.verdict import page
from fathom.timing import compare, settled
from tests.support.running import PYTHON, SOURCE, run_fathom

pytestmark = pytest.mark.programs

GPU = {"uuid": "GPU-1234", "index": 3}


def pairs(
    count: int, scatter: float, ratio: float, seed: int = 7
) -> tuple[list[list[float]], list[list[float]]]:
    draw = np.random.default_rng(seed)
    plain = [[float(t)] for t in 1.0 + scatter * draw.standard_normal(count)]
    return plain, [[float(ratio * t)] for t in 1.0 + scatter * draw.standard_normal(count)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("scatter", "ratio"), [(0.005, 0.9), (0.01, 1.0), (0.02, 0.8)])
def test_as_many_pairs_as_are_said_to_be_needed_settle_it(scatter: float, ratio: float, seed: int) -> None:
    """Told after twelve of them, within a factor of three, and not before it is settled."""
    said = needed(compare(*pairs(12, scatter, ratio, seed)), 0.01)
    assert said is not None
    assert settled(compare(*pairs(3 * said + 12, scatter, ratio, seed)), 0.01)


def test_what_cannot_decide_soon_says_so_with_what_it_takes() -> None:
    ratio = compare(*pairs(6, 0.01, 1.0))
    result = outlook(ratio, 0.01, spent_s=60.0, budget_s=70.0, most=60)
    assert result is not None and not result.soon and result.more <= 54
    said = result.warning(0.01, 70.0)
    assert (
        f"needs about {result.more} more pairs (~" in said and "to resolve 1 %" in said and "--budget" in said
    )
    easy = outlook(compare(*pairs(12, 0.002, 0.9)), 0.01, 12.0, 120.0, 60)
    assert easy is not None and easy.soon


@pytest.mark.parametrize(("scatter", "ratio", "why"), [(0.02, 0.99, "at the edge"), (0.2, 1.0, "wider")])
def test_no_budget_is_asked_for_where_the_limit_of_pairs_forbids_it(
    scatter: float, ratio: float, why: str
) -> None:
    """Nine of ten proofs with this scatter need over 60 pairs, which no proof has."""
    every = [compare(*pairs(12, scatter, ratio, seed)) for seed in range(10)]
    outlooks = [outlook(each, 0.01, spent_s=12.0, budget_s=1e9, most=60) for each in every]
    never = [ahead.warning(0.01, 1e9) for ahead in outlooks if ahead is not None and not ahead.soon]
    assert len(never) >= 9 and not any("--budget" in said for said in never)
    assert all("60 pairs" in said and "--margin" in said for said in never)
    assert sum(why in said for said in never) >= 5


def test_without_an_interval_there_is_no_outlook() -> None:
    assert outlook(compare(*pairs(3, 0.01, 1.0)), 0.01, 3.0, 120.0, 60) is None
    assert outlook(None, 0.01, 3.0, 120.0, 60) is None


def test_the_first_gpu_is_the_one_that_cuda_lists_first() -> None:
    gpus = [{"uuid": "GPU-a", "index": 0}, {"uuid": "GPU-b", "index": 1}]
    assert first_gpu(gpus, {}) is gpus[0] and first_gpu([], {}) is None
    assert first_gpu(gpus, {"CUDA_VISIBLE_DEVICES": "1,0"}) is gpus[1]
    assert first_gpu(gpus, {"CUDA_VISIBLE_DEVICES": "GPU-b"}) is gpus[1]
    assert first_gpu(gpus, {"CUDA_VISIBLE_DEVICES": ""}) is None
    assert first_gpu(gpus, {"CUDA_VISIBLE_DEVICES": "MIG-x"}) == {"uuid": "MIG-x"}


ALIKE = """
import torch

def inputs(seed):
    return (torch.rand(8, generator=torch.Generator().manual_seed(seed)),)

def a(x):
    return x + 1

def b(x):
    return 1 + x
"""
HOLDS = """
import sys, time
from pathlib import Path
from fathom.referee.queue import one_at_a_time
with one_at_a_time({"uuid": "GPU-1234", "index": 3}, print, Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(60)
"""


def holding(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    other = subprocess.Popen(
        [PYTHON, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert other.stdout is not None and other.stdout.readline() == "mine\n"
    return other


def test_a_second_proof_waits_and_a_death_lets_it_in(tmp_path: Path) -> None:
    other, said = holding(tmp_path), []

    def tell(text: str) -> None:
        said.append(text)
        other.send_signal(signal.SIGKILL)

    with one_at_a_time(GPU, tell, tmp_path):
        assert other.wait() == -signal.SIGKILL
        assert said == [f"waiting for another proof on GPU 3 (pid {other.pid})"]
        with one_at_a_time(GPU, tell, tmp_path):  # of this process: they share it
            assert len(said) == 1
    third = holding(tmp_path)  # it was given back
    third.kill()
    third.wait()


def test_other_gpus_and_places_without_locks_wait_for_nobody(tmp_path: Path) -> None:
    other, said = holding(tmp_path), []
    began = time.monotonic()
    with (
        one_at_a_time({"uuid": "GPU-other"}, said.append, tmp_path),
        one_at_a_time(None, said.append, tmp_path),
        one_at_a_time(GPU, said.append, tmp_path / "file" / "x"),
    ):
        assert not said and time.monotonic() - began < 30
    other.kill()
    other.wait()


def test_bars_are_as_long_as_the_ratio_says() -> None:
    """Medians of blocks said otherwise: 1.00 and 1.02 ms, while the ratio of pairs was 0.5."""
    sides = Timing(1.00e6, [1e6], 1), Timing(1.02e6, [1.02e6], 1)
    comparison = Comparison("", "faster", 0.5, [0.49, 0.51], 12, True, *sides)
    verdict = Verdict("faster", 0.5, [0.49, 0.51], [], 0.01, "a", "b", "cpu", timings=[comparison])
    baseline, candidate = (line.plain.count("█") for line in list(page(verdict, 100))[-2:])
    assert baseline == 51 and candidate == pytest.approx(baseline / 2, abs=1)


def test_prove_says_where_it_stands_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(ALIKE)
    words = ("prove", "pair.py:a", "pair.py:b", "--budget", "1", "--margin", "0.0001", "--fresh", "fork")
    done = run_fathom(*words, cwd=tmp_path)
    assert done.returncode == 1 and "within 60 pairs" in done.stderr, done.stderr
