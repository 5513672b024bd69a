"""Inference with autograd on: programs, and blocks of memory by hand."""

from __future__ import annotations

import pytest

from fathom.diagnosis.signals import Kept
from fathom.sounding.raw.importer import import_raw
from tests.support.findings_fakes import compute, raised, signals
from tests.support.findings_read import read
from tests.support.probe_programs import launch

KIND = "framework-autograd-in-inference"
KEEPS = {
    "grad": True,
    "loader": True,
    "no-grad": False,
    "loader-no-grad": False,
    "frozen": False,
    "train": False,
}


@pytest.mark.programs
@pytest.mark.parametrize("how", KEEPS)
def test_a_forward_pass_with_autograd_keeps_its_tensors(tmp_path, how):
    pytest.importorskip("torch")
    plan = {"steps": 4, "settle": 4, "depth": "timeline"}
    run = launch(tmp_path, "evaluating.py", how, "60", plan=plan)
    assert run.status == 0, run.err
    import_raw(tmp_path, tmp_path / "out.fathom")
    candidates = raised(read(tmp_path / "out.fathom"), KIND)
    assert bool(candidates) == KEEPS[how]
    if candidates:  # a matrix of 32 × 64 numbers in each of 16 layers
        assert candidates[KIND].evidence[0].value >= 16 * 32 * 64 * 4 / 1e6


@pytest.mark.parametrize(
    ("kept", "finding"),
    [
        (Kept(30, 37, 128_000_000), True),
        (Kept(2, 37, 4_000_000), False),  # the outputs
        (Kept(4, 4, 4_000_000), False),
        (Kept(), False),
    ],
)
def test_most_blocks_have_to_be_left(kept, finding):
    candidates = raised(signals([compute("a", 9.0)], framework_kept=kept), KIND)
    assert bool(candidates) == finding
    assert not finding or (candidates[KIND].costless and candidates[KIND].evidence[0].value == 128.0)
