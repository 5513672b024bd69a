"""Inference with autograd on: programs, and blocks of memory by hand."""

from __future__ import annotations

import pytest

from fathom.analysis.results import LedgerRow
from fathom.diagnosis.signals import Kept
from fathom.sounding.raw.importer import import_raw
from tests.support.findings_fakes import compute, idle, raised, signals
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


def test_the_bookkeeping_takes_a_part_of_the_hosts_time_if_the_device_waits():
    ledger = [compute("a", 1.0), idle("dispatching", 6.0), idle("python", 2.0), idle("gc", 1.0)]
    candidate = raised(signals(ledger, framework_kept=Kept(30, 37, 128_000_000)), KIND)[KIND]
    assert sum(claim.ms for claim in candidate.claims) == pytest.approx(1.6)
    assert candidate.changes == ("dispatching=0.8", "python=0.8")


def test_a_cpu_does_not_show_the_time_of_the_bookkeeping():
    known = {"step_device": "cpu", "framework_kept": Kept(30, 37, 128_000_000)}
    candidate = raised(signals([LedgerRow("ops", "aten::mm", 9.0), idle("python", 2.0)], **known), KIND)[KIND]
    assert candidate.unpredicted and not candidate.changes and not candidate.claims
