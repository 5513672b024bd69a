"""An examination beside the ledger: clean step, overhead, energy, memory, input, what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fathom.analysis.results import Examination, Memory
from tests.support.timelines import Timeline, examination_of, nanoseconds

MS = 1_000_000
S = 1_000 * MS


def recorded(
    clean_ms: list[float], timeline_ms: float = 12.0, idle_ms: float = 4.0, marks_every_ms: int | None = None
) -> Timeline:
    """Clean steps, a device boundary every `apart` of them, then a timeline of three steps of one kernel."""
    made = Timeline()
    made.phase, now = "clean", 10 * S
    for number, length in enumerate(clean_ms):
        end = now + round(length * MS)
        measured = {"device_ns": now + 7, "device_end_ns": end + 7} if marks_every_ms == 1 else {}
        if marks_every_ms and marks_every_ms > 1:
            measured = {
                "device_ns": now + 7 if number % marks_every_ms == 0 else None,
                "device_end_ns": end + 7 if (number + 1) % marks_every_ms == 0 else None,
            }
        made.step(now, end, samples=32, tokens=320, **measured)
        now = end
    made.phase, made.burst, now = "timeline", 1, now + S
    for _ in range(3):
        made.step(now, now + round(timeline_ms * MS))
        begin = now + round(idle_ms * MS)
        made.kernel(begin, now + round(timeline_ms * MS), launched=begin - MS)
        now += round(timeline_ms * MS)
    return made


def test_the_ledger_is_of_the_median_clean_step(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s.fathom", recorded([10.0] * 19 + [50.0]))
    step = examination.step
    assert (step.clean_ms, step.timeline_ms, step.n) == (pytest.approx(10), pytest.approx(12), 20)
    assert step.clean_mean_ms == pytest.approx(12)
    assert step.ci_ms == [pytest.approx(10), pytest.approx(10)]
    (device,) = examination.devices
    assert device.observer_ms == pytest.approx(-2)
    assert sum(e.ms for e in device.ledger) == pytest.approx(10)
    assert sum(e.ms for e in device.profiled_ledger) == pytest.approx(12)
    assert sum(e.ms for e in device.mean_ledger) == pytest.approx(12)
    rows = {e.entry: e for e in device.ledger}
    assert rows["compute"].ms == rows["compute"].clean_ms == pytest.approx(8) and not rows["compute"].inferred
    assert rows["idle: python"].inferred and rows["idle: python"].ms == pytest.approx(2)
    assert any(
        "longer" in absence.why
        for absence in examination.abstained
        if absence.what.startswith("profiling overhead")
    )


def test_device_work_that_clean_steps_have_no_room_for_has_a_row_and_is_a_problem(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s.fathom", recorded([5.0] * 20, marks_every_ms=1))
    (device,) = examination.devices
    rows = {entry.entry: entry.ms for entry in device.ledger}
    assert rows == {"compute": pytest.approx(8), "profiling overhead": pytest.approx(-3)}
    assert [problem.what for problem in examination.integrity.problems] == ["busy-beyond-clean"]
    assert examination.integrity.ok  # it falsifies no sum
    assert device.observer_ms == pytest.approx(-7)


def test_a_rare_long_step_is_not_what_recording_added(tmp_path: Path) -> None:
    made = recorded([12.0] * 20)
    (usual,) = examination_of(tmp_path / "usual.fathom", made).devices
    for row in (made.tables["steps"][-1], made.tables["kernels"][-1]):  # it evaluates: 40 ms more
        row["end_ns"] += 40 * MS
    examination = examination_of(tmp_path / "s.fathom", made)
    (device,) = examination.devices
    assert device.observer_ms == pytest.approx(12 - device.total_ms) and device.observer_ms < -10
    assert device.added_ms == pytest.approx(0)
    assert {e.entry: e.ms for e in device.ledger} == pytest.approx({e.entry: e.ms for e in usual.ledger})
    (why,) = (
        absence.why for absence in examination.abstained if absence.what.startswith("profiling overhead")
    )
    assert why.startswith("the profiled steps are uneven")


def test_a_faster_timeline_takes_nothing_off(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s.fathom", recorded([12.1] * 20))
    (device,) = examination.devices
    assert device.observer_ms == pytest.approx(0.1)
    rows = {e.entry: e.ms for e in device.ledger}
    profiled = {e.entry: e.ms for e in device.profiled_ledger}
    assert rows == pytest.approx(profiled | {"unattributed": 0.1})
    assert not any(absence.what.startswith("profiling overhead") for absence in examination.abstained)


def test_device_boundaries_count_where_they_were_measured(tmp_path: Path) -> None:
    made = recorded([10.0] * 20, marks_every_ms=1)
    for row in made.tables["steps"][:20]:
        row["device_end_ns"] += MS * (row["step"] + 1)  # the device falls behind by 1 ms a step
        row["device_ns"] += MS * row["step"]
    assert examination_of(tmp_path / "s.fathom", made).step.clean_ms == pytest.approx(11)


def test_short_steps_are_measured_over_several(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s.fathom", recorded([1.0, 1.4] * 20, marks_every_ms=4))
    assert examination.step.clean_ms == pytest.approx(1.2)
    assert examination.step.n == 40


def test_throughput_is_summed_over_ranks(tmp_path: Path) -> None:
    ranks = [recorded([10.0] * 20), recorded([10.0] * 20)]
    ranks[1].rank = 1
    step = examination_of(tmp_path / "s.fathom", *ranks).step
    assert (step.samples_per_s, step.tokens_per_s) == (pytest.approx(6400), pytest.approx(64_000))


def test_evaluations_between_clean_steps_do_not_count(tmp_path: Path) -> None:
    made = recorded([10.0] * 20)
    made.tables["steps"][10].update(kind="evaluation", end_ns=made.tables["steps"][10]["end_ns"])
    step = examination_of(tmp_path / "s.fathom", made).step
    assert (step.kind, step.n, step.clean_ms) == ("train", 19, pytest.approx(10))


def powered(made: Timeline, watts: float, device: int, period_ms: int = 100, energy: bool = True) -> None:
    for number in range(80):
        time = 9 * S + number * period_ms * MS
        joules = watts * number * period_ms / 1e3 if energy else None
        made.add("telemetry", device=device, time_ns=time, energy_j=joules, memory_bytes=1000 + number)


def test_energy_is_the_counters_rise_over_clean_steps(tmp_path: Path) -> None:
    made = recorded([10.0] * 200)
    powered(made, 500, 0)
    powered(made, 100, -1)
    energy = examination_of(tmp_path / "s.fathom", made).energy
    assert energy is not None
    assert energy.per_step_j == pytest.approx(5)
    assert energy.mean_power_w == pytest.approx(500)
    assert energy.host_per_step_j == pytest.approx(1)


@pytest.mark.parametrize(
    ("steps", "energy", "why"),
    [(20, True, "0.20 s"), (200, False, "no energy counter")],
    ids=["short", "none"],
)
def test_energy_abstains_with_a_reason(tmp_path: Path, steps: int, energy: bool, why: str) -> None:
    made = recorded([10.0] * steps)
    powered(made, 500, 0, energy=energy)
    examination = examination_of(tmp_path / "s.fathom", made)
    assert examination.energy is None
    assert any(why in absence.why for absence in examination.abstained if absence.what.startswith("energy"))


def test_energy_comes_from_later_steps_where_clean_ones_are_too_few(tmp_path: Path) -> None:
    made = recorded([10.0] * 20)
    for number in range(200):  # after the profiler they are 12 ms long
        start = 30 * S + number * 12 * MS
        row = {**made.tables["steps"][0], "step": 1000 + number, "burst": 9, "phase": "clean"}
        made.add("steps", **{**row, "mark_ns": start, "end_ns": start + 12 * MS})
    for row in made.tables["steps"]:  # a device times them, whose profiler stays attached
        row |= {"device_ns": row["mark_ns"], "device_end_ns": row["end_ns"]}
    for number in range(300):
        time = 9 * S + number * 100 * MS
        made.add("telemetry", device=0, time_ns=time, energy_j=50.0 * number, power_w=500.0)
    examination = examination_of(tmp_path / "s.fathom", made)
    energy = examination.energy
    assert examination.step.n == 20 and energy is not None
    assert (energy.per_step_low_j, energy.per_step_high_j) == (pytest.approx(5), pytest.approx(1300 / 220))
    assert (
        energy.per_step_low_j < energy.per_step_j < energy.per_step_high_j
        and "after profiling" in energy.source
    )


def test_sampled_power_takes_the_place_of_a_missing_counter(tmp_path: Path) -> None:
    made = recorded([10.0] * 200)
    for number in range(80):
        made.add("telemetry", device=0, time_ns=9 * S + number * 100 * MS, power_w=300.0)
    energy = examination_of(tmp_path / "s.fathom", made).energy
    assert energy is not None and energy.per_step_j == pytest.approx(3)
    assert energy.source.startswith("sampled power")


def test_energy_of_samples_and_tokens_is_that_of_a_step_of_them(tmp_path: Path) -> None:
    made = recorded([10.0] * 200)
    powered(made, 500, 0)
    examination = examination_of(tmp_path / "s.fathom", made)
    a_step = examination.step.tokens_per_s * examination.step.clean_mean_ms / 1e3
    assert examination.energy.per_token_j == pytest.approx(examination.energy.per_step_j / a_step)
    assert examination.energy.per_sample_j is not None


def test_a_counter_that_falls_is_not_trusted(tmp_path: Path) -> None:
    made = recorded([10.0] * 200)
    powered(made, 500, 0)
    made.tables["telemetry"][20]["energy_j"] = 0.0
    examination = examination_of(tmp_path / "s.fathom", made)
    assert examination.energy is None
    assert any("fell" in absence.why for absence in examination.abstained)


def test_memory_is_the_largest_peak(tmp_path: Path) -> None:
    made = recorded([10.0] * 200)
    powered(made, 500, 0)
    made.add("memory", time_ns=1, device=0, event="peak", allocated=5, reserved=8)
    made.add("memory", time_ns=2, device=0, event="peak", allocated=7, reserved=9)
    made.add("memory", time_ns=3, device=0, event="now", allocated=70, reserved=90)
    memory = examination_of(tmp_path / "s.fathom", made).memory
    assert memory == Memory(7, 9, 1079)


def test_input_counts_waits_of_clean_steps_and_stages_by_worker(tmp_path: Path) -> None:
    made = recorded([10.0] * 20)
    for number in range(20):
        start = 10 * S + number * 10 * MS
        made.phase = "clean"
        made.wait("input", start, start + 2 * MS)
        stages = {"fetch_ns": 30 * MS, "collate_ns": MS}
        made.add("input", loader=0, batch=number, worker=number % 2, start_ns=start, wait_ns=2 * MS, **stages)
    result = examination_of(tmp_path / "s.fathom", made).input
    assert result is not None
    assert (result.wait_ms, result.wait_share) == (pytest.approx(2), pytest.approx(0.2))
    assert (result.fetch_ms, result.collate_ms) == (30, 1)
    assert [(w.worker, w.batches, w.fetch_ms) for w in result.workers] == [
        (0, 10, 30),
        (1, 10, 30),
    ]
    assert result.threads is result.cpu_wait_share is None  # not recorded


@pytest.mark.parametrize(("threads", "shown"), [(1, None), (4, 4)])
def test_input_sums_threads_and_waits_for_processors_over_all_batches(
    tmp_path: Path, threads: int, shown: int | None
) -> None:
    made = recorded([10.0] * 20)
    for number in range(20):
        start = 10 * S + number * 10 * MS
        made.phase = "clean"
        long = number % 5 == 0  # waits come in bursts: most batches do not wait
        stages = {"fetch_ns": (90 if long else 8) * MS, "cpu_wait_ns": 40 * MS * long, "collate_ns": MS}
        made.add(
            "input", loader=0, batch=number, worker=0, start_ns=start, wait_ns=1, threads=threads, **stages
        )
    result = examination_of(tmp_path / "s.fathom", made).input
    assert result is not None and result.threads == shown
    assert result.cpu_wait_share == pytest.approx(4 * 40 / (4 * 91 + 16 * 9))
    assert result.workers[0].threads == shown


def test_the_contract_is_kept(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s.fathom", recorded([10.0] * 20))
    content: dict[str, Any] = msgspec.to_builtins(examination)
    assert {
        "step",
        "devices",
        "integrity",
        "input",
        "memory",
        "energy",
        "findings",
        "abstained",
    } <= content.keys()
    assert {"clean_ms", "timeline_ms", "ci_ms", "n", "kind"} <= content["step"].keys()
    (device,) = content["devices"]
    assert {"rank", "device", "windows", "total_ms", "ledger", "observer_ms"} <= device.keys()
    assert {"start_ns", "end_ns", "kind", "used"} <= device["windows"][0].keys()
    assert {"entry", "detail", "ms", "at_ceiling_ms"} <= device["ledger"][0].keys()
    assert msgspec.json.decode(msgspec.json.encode(examination), type=Examination) == examination


def test_without_a_timeline_there_is_a_clean_step_and_no_ledger(tmp_path: Path) -> None:
    made = recorded([10.0] * 20)
    made.tables = {"steps": made.tables["steps"][:20]}
    examination = examination_of(tmp_path / "s.fathom", made)
    assert examination.devices == []
    assert (examination.step.clean_ms, examination.step.timeline_ms, examination.step.kind) == (
        pytest.approx(10),
        None,
        "train",
    )
    assert any(absence.what == "ledger" for absence in examination.abstained)


def test_an_empty_sounding_says_what_it_lacks(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s.fathom", Timeline())
    assert examination.devices == []
    assert examination.step.clean_ms is examination.step.timeline_ms is None
    assert {absence.what for absence in examination.abstained} >= {
        "ledger",
        "clean step",
        "energy",
        "input",
        "memory",
    }


def test_without_a_device_the_processor_is_accounted_for(tmp_path: Path) -> None:
    made = Timeline(devices={})
    made.step(1000, 2000)
    made.op("aten::linear", 1100, 1500)
    made.op("aten::mm", 1200, 1400)
    made.op("aten::mm", 1250, 1300)
    made.wait("input", 1450, 1700)
    made.op("aten::stack", 1600, 1650)
    made.wait("gc", 1800, 1850)
    (device,) = examination_of(tmp_path / "s.fathom", made).devices
    assert device.device == "cpu"
    assert {(entry.entry, entry.detail): entry.ns for entry in device.ledger} == {
        ("ops", "aten::linear"): 150,
        ("ops", "aten::mm"): 200,
        ("idle: input", ""): 250,
        ("idle: gc", ""): 50,
        ("idle: python", ""): 350,
    }
    assert {entry.detail: entry.count for entry in device.ledger if entry.entry == "ops"} == {
        "aten::linear": 1,
        "aten::mm": 2,
    }
    assert nanoseconds(device)["ops"] == 350


def test_the_copy_of_a_batch_counts_whether_compute_hides_it_or_not(tmp_path):
    timeline = Timeline()
    timeline.steps(0, 1000, 2000)
    timeline.add("input", loader=1, batch=0, start_ns=5, wait_ns=3, fetch_ns=7)
    timeline.kernel(100, 900, 10)
    timeline.kernel(200, 260, 20, kind="copy", direction="HtoD pinned", stream=9)
    timeline.kernel(950, 990, 30, kind="copy", direction="HtoD pinned", stream=9)
    timeline.kernel(1100, 1900, 1010)
    timeline.kernel(1300, 1350, 1020, kind="copy", direction="DtoH pinned", stream=9)
    examination = examination_of(tmp_path / "s", timeline)
    assert examination.input.copy_ms == pytest.approx((60 + 40) / 2 / 1e6)


@pytest.mark.parametrize("phase", ["settle", "clean"])
def test_a_program_that_ended_before_a_timeline_was_due_is_told_what_to_do(tmp_path: Path, phase) -> None:
    made = Timeline(phase=phase)
    made.steps(*range(10 * S, 10 * S + 9 * MS, MS))
    examination = examination_of(tmp_path / "s.fathom", made)
    (why,) = (absence.why for absence in examination.abstained if absence.what == "ledger")
    assert "after 8 complete steps;" in why and "--settle" in why
