"""Which clean steps stand for the undisturbed program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from fathom.analysis.intervals import Spans
from fathom.analysis.replay import Replay
from fathom.analysis.steps import Stretch, clean_step, stretches, undisturbed
from fathom.analysis.waits import Waits
from fathom.cli.main import app
from fathom.sounding import open_store
from tests.support.timelines import Timeline, examination_of

MS = 1_000_000


def stretch(start: int, step_ms: float, count: int, device: bool = True) -> Stretch:
    marks = (np.arange(count + 1) * step_ms * MS).astype(np.int64)
    timed = marks.astype(float) if device else np.full(count + 1, np.nan)
    return Stretch(start, start + int(marks[-1]), marks, timed, None, None)


def test_steps_that_the_profiler_left_slower_do_not_count() -> None:
    before, after = stretch(0, 6.6, 12), stretch(10**9, 8.1, 500)
    kept, why = undisturbed([before, after], 5 * 10**8)
    assert kept == [before]
    assert "23 % longer" in why and "only steps before profiling" in why


def test_without_a_device_the_program_itself_became_slower() -> None:
    sides = [stretch(0, 6.6, 12, device=False), stretch(10**9, 8.1, 500, device=False)]
    assert undisturbed(sides, 5 * 10**8) == (sides, "")


def test_steps_that_became_quicker_count_alone() -> None:
    before, after = stretch(0, 33.0, 12), stretch(10**9, 10.0, 500)
    assert undisturbed([before, after], 5 * 10**8) == ([after], "")


def test_steps_that_are_longer_because_they_wait_for_batches_are_what_the_program_is_like() -> None:
    before, after = stretch(0, 20.0, 12), stretch(10**9, 50.0, 100)
    steps = 10**9 + 50 * MS * np.arange(100)
    assert undisturbed([before, after], 5 * 10**8, Spans(steps, steps + 24 * MS)) == ([after], "")
    kept, why = undisturbed([before, after], 5 * 10**8, Spans(steps, steps + 5 * MS))
    assert kept == [before] and "longer" in why


def test_a_program_that_takes_longer_and_longer_is_not_put_down_to_the_profiler() -> None:
    before, after = stretch(0, 6.6, 12), stretch(10**9, 6.6, 500)
    after.marks[20:] += np.cumsum(np.linspace(0, 9 * MS, 481)).astype(np.int64)
    assert undisturbed([before, after], 5 * 10**8) == ([before, after], "")
    assert np.median(np.diff(after.marks)) > 6.6 * MS * 1.5


def test_like_steps_all_count() -> None:
    result = [stretch(0, 11.2, 12), stretch(10**9, 11.25, 500)]
    assert undisturbed(result, 5 * 10**8) == (result, "")
    assert undisturbed(result, None) == (result, "")


def test_waits_before_the_first_device_boundary_do_not_belong_to_the_steps() -> None:
    """A collection of 0.5 ms while Fathom prepares to measure, and one of 1 ms in a later step."""
    run = stretch(0, 2.0, 10)
    run.device[0] = 0.9 * MS
    gc = {"cause": ["gc", "gc"], "start_ns": [MS // 4, 7 * MS], "end_ns": [MS * 3 // 4, 8 * MS]}
    waits = Waits(pl.DataFrame(gc | {"thread": [1, 1]}), 1)
    assert waits.of_steps([run]) == {"gc": pytest.approx(0.1)}
    run.device[0] = 2.5 * MS  # the device runs behind: no step is shorter
    assert waits.of_steps([run]) == {"gc": pytest.approx(0.15)}


def test_throughput_refers_to_step_time_and_not_to_launches_of_a_host_that_runs_ahead() -> None:
    marks = (np.array([0, 10, 20, 22, 24, 26, 28]) * MS).astype(np.int64)
    device = np.append(np.arange(6) * 10.0 * MS, np.nan)
    clean = clean_step([Stretch(0, 28 * MS, marks, device, samples=6 * 64, tokens=None)])
    assert clean is not None and clean.mean_ms == pytest.approx(10)
    assert (clean.samples_per_s, clean.tokens_per_s) == (pytest.approx(6400), None)


def test_device_boundaries_replace_the_marks_of_a_host_that_runs_ahead() -> None:
    ahead = {"burst": [1] * 12, "mark_ns": [n * MS // 5 for n in range(12)], "device_ns": [None] * 12}
    steady = {"burst": [5] * 9, "mark_ns": [(100 + 6 * n) * MS for n in range(9)]}
    steady["device_ns"] = steady["mark_ns"]
    frames = []
    for rows in (ahead, steady):
        marks = rows["mark_ns"]
        length = marks[1] - marks[0]
        device = rows["device_ns"]
        frames.append(
            pl.DataFrame(
                {
                    "step": [len(frames) * 100 + n for n in range(len(marks))],
                    "burst": rows["burst"],
                    "mark_ns": marks,
                    "end_ns": [mark + length for mark in marks],
                    "device_ns": device,
                    "device_end_ns": [None if at is None else at + length for at in device],
                },
                schema_overrides={"device_ns": pl.Int64, "device_end_ns": pl.Int64},
            )
        )
    constant = {"phase": "clean", "kind": "replay"}
    steps = pl.concat(frames).with_columns(
        *(pl.lit(value).alias(name) for name, value in constant.items()),
        *(pl.lit(None, dtype=pl.Int64).alias(name) for name in ("parent", "samples", "tokens")),
    )
    (kept,) = stretches(steps, "replay")
    assert kept.count == 9


@pytest.mark.parametrize(("launched_us", "known"), [(100, False), (600, True)])
def test_steps_launched_faster_than_the_device_runs_them_have_no_length(
    tmp_path: Path, launched_us: int, known: bool
) -> None:
    """Kernels fill 500 µs a step, and no device event says how long clean ones took."""
    timeline = Timeline(phase="clean", burst=1)
    timeline.steps(*range(0, 13_000 * launched_us, 1000 * launched_us))
    timeline.phase, timeline.burst = "timeline", 3
    timeline.steps(*range(50_000_000, 53_000_000, 500_000), stream=7)
    for start in range(50_000_000, 53_000_000, 500_000):
        timeline.kernel(start, start + 499_000, launched=start - 5_000)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    assert (examination.step.clean_ms is not None) == known
    why = [absence.why for absence in examination.abstained if absence.what == "clean step"]
    assert [text for text in why if "faster than the device" in text] == ([] if known else why[:1])
    assert (Replay(open_store(tmp_path / "s.fathom")).clean is not None) == known


def test_the_usual_step_does_not_wait_like_the_rare_ones(tmp_path: Path) -> None:
    """Clean steps compute for 20 ms and wait for 20 ms, or 120 ms; profiled ones compute for 10 ms."""
    timeline, at = Timeline(phase="clean", burst=1, devices={}), 0
    for wait in [20, 20, 120, 20, 120] * 20:
        timeline.step(at, at + (wait + 20) * MS)
        timeline.wait("input", at, at + wait * MS)
        at += (wait + 20) * MS
    timeline.phase, timeline.burst = "timeline", 3
    for start in range(at, at + 300 * MS, 30 * MS):
        timeline.step(start, start + 30 * MS)
        timeline.wait("input", start, start + 20 * MS)
        timeline.op("aten::mm", start + 20 * MS, start + 30 * MS)
    (device,) = examination_of(tmp_path / "s.fathom", timeline).devices
    usual, mean = ({row.entry: row.ms for row in rows} for rows in (device.ledger, device.mean_ledger))
    assert sum(usual.values()) == pytest.approx(40) and usual["idle: input"] == pytest.approx(20)
    assert sum(mean.values()) == pytest.approx(80) and mean["idle: input"] == pytest.approx(60)


@pytest.mark.parametrize("others", [0.0, 60.0])
def test_interruptions_by_other_programs_are_not_the_program_s_python(tmp_path: Path, others: float) -> None:
    """Steps compute for 8 ms and run Python for 2 ms; one clean step in 20 is longer, and a profiled one."""
    timeline, at = Timeline(phase="clean", burst=1, devices={}), 0
    for k in range(60):
        length = (110 if k % 20 == 10 else 10) * MS
        timeline.step(at, at + length)
        timeline.add("telemetry", time_ns=at, device=-1, busy_percent=40.0 + others, program_percent=40.0)
        at += length
    timeline.phase, timeline.burst = "timeline", 3
    for k in range(10):
        length = (110 if k == 5 else 10) * MS
        timeline.step(at, at + length)
        timeline.op("aten::mm", at, at + 8 * MS)
        at += length
    (device,) = examination_of(tmp_path / "s.fathom", timeline).devices
    mean = {row.entry: row.ms for row in device.mean_ledger}
    assert sum(mean.values()) == pytest.approx(15)
    assert (mean["idle: python"] < 3) == bool(others)
    assert (mean.get("unattributed", 0.0) > 4) == bool(others)


def test_a_timeline_without_a_step_is_not_compared_with_clean_steps(tmp_path: Path) -> None:
    """The program ended after its clean steps, while the profiler ran."""
    timeline = Timeline(phase="clean", burst=1, devices={})
    timeline.steps(*range(0, 9 * MS, MS))
    timeline.phase, timeline.burst = "timeline", 3
    timeline.op("aten::mm", 9 * MS, 10 * MS)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    assert examination.step.kind == "train" and examination.step.clean_ms == pytest.approx(1)
    assert not any(device.ledger for device in examination.devices)
    (why,) = (absence.why for absence in examination.abstained if absence.what == "ledger")
    assert "ended after 8 complete steps" in why and "--settle" in why
    predicted = CliRunner().invoke(app, ["what-if", str(tmp_path / "s.fathom"), "gc=0"])
    assert predicted.exit_code == 1 and "not analysed" in predicted.output


@pytest.mark.parametrize("grows", [True, False])
def test_steps_that_outgrow_the_profiled_ones_are_reported_with_a_later_step(
    tmp_path: Path, grows: bool
) -> None:
    """Steps of a sequence-length warm-up take 10 to 50 ms, of which the first ones are profiled."""
    timeline, at = Timeline(phase="timeline", burst=1, devices={}), 0
    lengths = [10] * 10 + [10 + k // 5 if grows else 50 for k in range(200)]
    for k, length in enumerate(lengths):
        timeline.phase, timeline.burst = ("timeline", 1) if k < 10 else ("clean", 2)
        timeline.step(at, at + length * MS)
        timeline.op("aten::mm", at, at + length * MS)
        at += length * MS
    examination = examination_of(tmp_path / "s.fathom", timeline)
    grew = [absence.why for absence in examination.abstained if "clean steps grew" in absence.why]
    assert len(grew) == grows
    assert not grows or ("from 16 to 43 ms" in grew[0] and "`--at 110`" in grew[0])
