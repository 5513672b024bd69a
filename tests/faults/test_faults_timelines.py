"""Simulated jobs of several GPUs: their labels, and what the diagnosis says of a few."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from fathom.analysis.results import Examination
from fathom.diagnosis import examine
from faults.labels import Program, timelines
from faults.score import case_of, false_findings, place
from faults.timelines.simulator import Job

BY_NAME = {program.name: program for program in timelines()}
SAMPLE = ("few_micro_batches", "popular_experts", "tensor_parallel_across_hosts", "gathers_not_prefetched")


def job(name: str, form: str, severity: int = 3) -> Job:
    return importlib.import_module(BY_NAME[name].module).build(form, severity)


def examined(name: str, form: str, folder: Path) -> Examination:
    return examine(job(name, form).write(folder / f"{name}.fathom"))


def test_the_suite_has_twelve_kinds_at_three_severities() -> None:
    kinds = {program.fault.kind for program in timelines()}
    assert len(kinds) >= 12
    assert sum(len(program.fault.severity) for program in timelines()) >= 36


@pytest.mark.parametrize("program", [BY_NAME[name] for name in SAMPLE], ids=lambda program: program.name)
def test_a_fault_costs_what_its_label_says(program: Program) -> None:
    for severity in (1, 3):
        faulty, mended = (job(program.name, form, severity).step_ms for form in ("faulty", "mended"))
        assert 1 - mended / faulty == pytest.approx(program.fault.share[severity - 1], abs=0.01)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_cause_is_first_and_the_mended_form_is_clean(name: str, tmp_path: Path) -> None:
    program = BY_NAME[name]
    faulty = case_of(program, "faulty", 3, examined(name, "faulty", tmp_path))
    assert place(faulty) == 1 and not false_findings([faulty])
    mended = case_of(program, "mended", 3, examined(name, "mended", tmp_path / "mended"))
    assert not false_findings([mended])


def test_stages_of_a_pipeline_and_its_bubble(tmp_path: Path) -> None:
    pipeline = examined("few_micro_batches", "faulty", tmp_path).pipeline
    assert pipeline is not None and [stage.rank for stage in pipeline.stages] == [0, 1, 2, 3]
    assert (pipeline.micro_batches, pipeline.schedule) == (4, "all forward, then all backward (GPipe)")
    assert pipeline.expected == pytest.approx(3 / 7)
    assert all(stage.share == pytest.approx(3 / 7, abs=0.02) for stage in pipeline.stages)
    assert pipeline.imbalance == pytest.approx(1.0, abs=0.01)


def test_tokens_of_experts_by_rank(tmp_path: Path) -> None:
    loads = {load.rank: load.load for load in examined("popular_experts", "faulty", tmp_path).experts}
    assert loads[1] == pytest.approx(3.0) and loads[0] == pytest.approx(1 / 3)
