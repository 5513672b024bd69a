"""Simulated jobs of several GPUs: their labels, and what the diagnosis says of a few."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import fathom
from fathom.analysis.results import Examination
from fathom.diagnosis import examine
from fathom.report.communication import critical
from faults.labels import Program, timelines
from faults.score import case_of, false_findings, place
from faults.timelines.simulator import COMPUTE, Job, forward, update

BY_NAME = {program.name: program for program in timelines()}
SAMPLE = (
    "small_model_on_many",
    "few_micro_batches",
    "uncaptured_batches",
    "popular_experts",
    "tensor_parallel_across_hosts",
    "gathers_not_prefetched",
)


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
    store = job("popular_experts", "faulty").write(tmp_path / "experts.fathom")
    loads = dict(fathom.open(store.path).sql("SELECT rank, load FROM experts").rows())
    assert loads[1] == pytest.approx(3.0) and loads[0] == pytest.approx(1 / 3)


def test_stages_are_a_table(tmp_path: Path) -> None:
    sounding = fathom.open(job("few_micro_batches", "faulty", 1).write(tmp_path / "stages.fathom").path)
    rows = sounding.sql("SELECT rank, place, micro_batches FROM pipeline WHERE bubble_ms > 0").rows()
    assert [row[:2] for row in rows] == [(0, 0), (1, 1), (2, 2), (3, 3)] and rows[0][2] >= 4
    assert sounding.experts.columns == ["rank", "load"] and sounding.experts.is_empty()


@pytest.mark.parametrize("name", ["long_documents", "slow_loader"])
def test_a_late_rank_costs_as_much_in_the_report_as_in_the_finding(name: str, tmp_path: Path) -> None:
    """Buckets of gradients queue behind it, so that the others wait longer than its lateness."""
    result = examined(name, "faulty", tmp_path)
    lost_ms = job(name, "faulty").step_ms - job(name, "mended").step_ms
    assert result.findings[0].gain_ms == pytest.approx(result.late[0].cost_ms, rel=1e-3)  # one is rounded
    assert result.late[0].cost_ms == pytest.approx(lost_ms, rel=0.1)


def test_the_critical_path_runs_through_the_late_rank(tmp_path: Path) -> None:
    """Rank 3 waits 12 ms for its data. All ranks compute for 4 ms, reduce for 2 ms and update for 0.2 ms."""

    def step(of: Job) -> None:
        for rank in of.ranks:
            rank.synchronise()
            rank.wait("input", 12_000 if rank.number == 3 else 20)
        forward(of, 10, 400)
        of.collective("all_reduce", 1e8, us=2000)
        of.follow()
        update(of, 200)

    result = examine(Job(count=4).run(step).write(tmp_path / "late.fathom"))
    parts = {(part.rank, part.stream, part.entry): part.ms for part in result.critical_path}
    assert parts[3, None, "input"] == pytest.approx(12.0, abs=0.05)
    assert parts[3, COMPUTE, "compute"] == pytest.approx(4.0, abs=0.01)
    assert sum(ms for key, ms in parts.items() if key[2] == "communication") == pytest.approx(2.0, abs=0.01)
    assert sum(parts.values()) == pytest.approx(result.step.timeline_ms)
    assert sum(part.share for part in result.critical_path) == pytest.approx(1.0)
    lines = [str(line) for line in critical(result.critical_path, 78)]
    assert lines[1].split()[:3] == ["input", "3", "host"] and len(lines) - 1 < len(parts)


@pytest.mark.parametrize(("layers", "transfer_us"), [(8, 300), (8, 1000)])
def test_a_step_with_perfect_overlap_takes_as_long_as_compute_or_transfers(
    layers: int, transfer_us: int, tmp_path: Path
) -> None:
    def step(of: Job) -> None:
        forward(of, layers, 800)
        for _ in range(8):
            of.collective("all_reduce", 1e8, us=transfer_us)
        of.follow()
        update(of)
        for rank in of.ranks:
            rank.synchronise()

    built = Job(count=2).run(step)
    sounding = fathom.open(built.write(tmp_path / "job.fathom").path)
    compute_ms, transfer_ms = layers * 0.8 + 0.2, 8e-3 * transfer_us
    assert built.step_ms == pytest.approx(compute_ms + transfer_ms, rel=0.02)
    result = sounding.what_if("exposed=0")
    assert result.predicted_ms == pytest.approx(max(compute_ms, transfer_ms), rel=0.02)
    assert sum(row.after_ms for row in result.moved) == pytest.approx(result.predicted_ms)
    faster = sounding.what_if("exposed=0", "link=2").predicted_ms
    assert faster == pytest.approx(max(compute_ms, transfer_ms / 2), rel=0.02)
