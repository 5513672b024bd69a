"""The referee on a real GPU: cheats that need one, equal sides, and a planted 2 per cent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fathom
from fathom.referee import Verdict
from tests.support.paths import CHEATS

NAMES = sorted(path.stem for path in CHEATS.glob("gpu_*.py"))
HONEST = f"{CHEATS / 'honest_gpu.py'}:baseline"
QUICK: dict[str, Any] = {"budget_s": 0, "block_s": 0.05, "fresh": "fork", "bare": False}

KERNELS = """
import torch

def inputs(seed):
    return torch.randn(SIZE, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))

def baseline(x):
    for _ in range(50):
        x = x * 1.0001
    return x

def longer(x):
    for _ in range(51):
        x = x * 1.0001
    return x

def work(x):
    return {"bytes": 2 * 50 * x.nbytes}
"""


def prove(candidate: str, baseline: str = HONEST, **options: Any) -> Verdict:
    return fathom.prove(baseline, candidate, **{**QUICK, **options})


@pytest.mark.parametrize("cheat", NAMES)
def test_it_is_refused_for_the_right_reason(cheat: str) -> None:
    match = re.search(r"^# refused: (\S+)$", (CHEATS / f"{cheat}.py").read_text(), re.M)
    assert match is not None
    verdict = prove(f"{CHEATS / cheat}.py:candidate")
    assert [reason.code for reason in verdict.reasons][:1] == [match[1]], verdict.reasons


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("SIZE", str(2**24)))
    return str(path)


def test_equal_sides_are_not_distinguished(kernels: str) -> None:
    verdict = prove(HONEST, budget_s=60)
    assert verdict.verdict in ("same", "inconclusive"), verdict
    assert [comparison.cache for comparison in verdict.timings] == ["warm", "cold"]
    for comparison in verdict.timings:
        assert comparison.baseline.ns > 0 and comparison.baseline.cycles


def test_two_per_cent_are_detected(kernels: str) -> None:
    """One launch of fifty more; another result too, which is passed and excused here."""
    verdict = prove(f"{kernels}:longer", f"{kernels}:baseline", budget_s=60, allow=EXCUSED)
    assert verdict.verdict == "slower", verdict
    assert verdict.ratio == pytest.approx(1.02, abs=0.01)


EXCUSED = ("wrong-result", "lower-precision", "partial-result")


def test_no_side_exceeds_its_ceiling(kernels: str) -> None:
    verdict = prove(f"{kernels}:baseline", f"{kernels}:baseline", work=f"{kernels}:work")
    for comparison in verdict.timings:
        ceiling = comparison.candidate.ceiling
        assert ceiling is None or comparison.cache == "warm" or 0.3 < ceiling.fraction < 1.1


@pytest.mark.parametrize("latency", ["removed", "included"])
def test_launch_latency_is_removed_or_included(latency: str) -> None:
    verdict = prove(HONEST, latency=latency)
    assert verdict.latency == latency and not any("waits for the device" in note for note in verdict.notes)


def test_what_would_beat_the_chip_is_refused() -> None:
    verdict = prove(HONEST, flops=1e18, unit="matmul.fp32")
    assert verdict.reasons and verdict.reasons[0].code == "above-peak"
