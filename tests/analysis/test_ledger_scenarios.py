"""Hand-made timelines with a known account: what was planted comes back under its name, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.sounding.manifest import Problem
from tests.support.timelines import ENGINE, MAIN, OTHER, Timeline, devices_of, examination_of, nanoseconds


@pytest.fixture
def timeline() -> Timeline:
    """One step of 1000 ns; a kernel before it ends at its mark, so that the device is idle from the start."""
    made = Timeline()
    made.step(1000, 2000)
    made.op("aten::first", 900, 905)
    return made


def account(path: Path, timeline: Timeline) -> dict[str, int]:
    (device,) = devices_of(path / "s.fathom", timeline)
    return nanoseconds(device)


def test_a_sleep_between_ops_is_python(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1100, 1300, launched=1050)
    timeline.op("aten::mm", 1040, 1060)
    timeline.op("aten::relu", 1850, 1900)
    timeline.kernel(1900, 2000, launched=1880)
    result = account(tmp_path, timeline)
    assert result == {
        "compute": 300,
        "idle: python": 40 + 550,
        "idle: dispatching": 10 + 30,
        "idle: launch latency": 50 + 20,
    }


def test_causes_come_back_and_what_was_meant_wins_over_what_was_called(
    tmp_path: Path, timeline: Timeline
) -> None:
    timeline.wait("input", 1000, 1200)
    timeline.op("aten::stack", 1050, 1100)
    timeline.call("cudaStreamSynchronize", 1100, 1150)
    timeline.wait("checkpoint", 1200, 1400)
    timeline.call("cudaMalloc", 1300, 1350)
    timeline.wait("gc", 1400, 1450)
    timeline.call("cudaFree", 1420, 1500)
    timeline.call("cudaDeviceSynchronize", 1500, 1600)
    timeline.wait("compile", 1600, 1700)
    timeline.kernel(1900, 2000, launched=1800)
    assert account(tmp_path, timeline) == {
        "idle: input": 200,
        "idle: checkpoint": 200,
        "idle: gc": 50,
        "idle: allocator": 50,
        "idle: synchronisation": 100,
        "idle: compilation": 100,
        "idle: python": 100,
        "idle: launch latency": 100,
        "compute": 100,
    }


def test_details_name_the_call(tmp_path: Path, timeline: Timeline) -> None:
    timeline.call("cudaMalloc", 1100, 1200)
    timeline.call("hipStreamSynchronize", 1200, 1300)
    timeline.kernel(1900, 2000, launched=1800)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    details = {entry.entry: entry.detail for entry in device.ledger if entry.detail}
    assert details == {
        "idle: allocator": "cudaMalloc",
        "idle: synchronisation": "hipStreamSynchronize",
        "compute": "gemm",
    }


def test_loader_and_compiler_are_known_by_their_regions(tmp_path: Path, timeline: Timeline) -> None:
    timeline.op(
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1000, 1300, kind="annotation"
    )
    timeline.op("_compile.compile_inner (dynamo_timed)", 1300, 1500, kind="annotation")
    timeline.kernel(1900, 2000, launched=1500)
    result = account(tmp_path, timeline)
    assert (result["idle: input"], result["idle: compilation"]) == (300, 200)


def test_an_annotation_alone_dispatches_nothing(tmp_path: Path, timeline: Timeline) -> None:
    timeline.op("forward", 1000, 1800, kind="annotation")
    timeline.kernel(1900, 2000, launched=1800)
    result = account(tmp_path, timeline)
    assert result == {"idle: python": 800, "idle: launch latency": 100, "compute": 100}


def test_an_item_on_a_busy_device_costs_only_what_comes_after(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1700, launched=1000)
    timeline.kernel(1700, 1710, launched=1010, kind="copy", direction="DtoH pageable")
    timeline.call("cudaStreamSynchronize", 1020, 1730)
    timeline.kernel(1850, 2000, launched=1800)
    assert account(tmp_path, timeline) == {
        "compute": 850,
        "copy": 10,
        "idle: synchronisation": 20,
        "idle: python": 70,
        "idle: launch latency": 50,
    }


def test_a_launch_that_a_full_queue_blocks_costs_nothing(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1500, launched=1000)
    timeline.call("cudaLaunchKernel", 1010, 1490, correlation=77)
    timeline.kernel(1510, 2000, launched=None, correlation=77)
    assert account(tmp_path, timeline) == {"compute": 990, "idle: device gap": 10}


def test_an_idle_engine_thread_shows_what_its_caller_did(tmp_path: Path, timeline: Timeline) -> None:
    timeline.op("autograd::engine::evaluate_function: MmBackward0", 1500, 1600, ENGINE)
    timeline.op("aten::loss", 1100, 1200)
    timeline.wait("gc", 1300, 1350)
    timeline.kernel(1650, 2000, launched=1590, thread=ENGINE)
    assert account(tmp_path, timeline) == {
        "idle: dispatching": 100 + 90,
        "idle: gc": 50,
        "idle: python": 100 + 100 + 150,
        "idle: launch latency": 60,
        "compute": 350,
    }


def test_the_caller_of_a_backward_pass_shows_what_the_engine_did(tmp_path: Path, timeline: Timeline) -> None:
    timeline.op("autograd::engine::evaluate_function: AccumulateGrad", 1100, 1400, ENGINE)
    timeline.op("aten::after", 1700, 1800)
    timeline.kernel(1900, 2000, launched=1790)
    assert account(tmp_path, timeline) == {
        "idle: dispatching": 300 + 90,
        "idle: python": 100 + 300,
        "idle: launch latency": 110,
        "compute": 100,
    }


def test_a_background_thread_explains_nothing(tmp_path: Path, timeline: Timeline) -> None:
    timeline.call("cudaMalloc", 1100, 1400, OTHER)
    timeline.wait("input", 1100, 1400, OTHER)
    timeline.kernel(1900, 2000, launched=1800)
    assert account(tmp_path, timeline)["idle: python"] == 800


def test_a_thread_without_a_sign_of_python_is_unexplained(tmp_path: Path, timeline: Timeline) -> None:
    timeline.call("cudaMalloc", 1100, 1200, OTHER)
    timeline.kernel(1900, 2000, launched=1800, thread=OTHER)
    assert account(tmp_path, timeline) == {
        "idle: allocator": 100,
        "idle: unexplained": 700,
        "idle: launch latency": 100,
        "compute": 100,
    }


def test_python_lies_between_two_events_of_its_thread(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.step(1000, 2000, thread=None)
    timeline.op("region", 1200, 1300, OTHER, kind="annotation")
    timeline.kernel(1500, 2000, launched=1400, thread=OTHER)
    assert account(tmp_path, timeline) == {
        "idle: unexplained": 200,
        "idle: python": 200,
        "idle: launch latency": 100,
        "compute": 500,
    }


def test_work_whose_launch_is_lost_leaves_its_gap_unexplained(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1100, launched=1000)
    timeline.kernel(1500, 2000, launched=None)
    assert account(tmp_path, timeline) == {"compute": 600, "idle: unexplained": 400}


def test_a_graph_is_launched_once_and_gaps_between_its_nodes_are_the_devices(
    tmp_path: Path, timeline: Timeline
) -> None:
    timeline.call("cudaGraphLaunch", 1100, 1180, correlation=5)
    for start in (1200, 1400, 1600):
        timeline.kernel(start, start + 150, launched=None, correlation=5)
    timeline.op("aten::end", 1990, 2005)
    assert account(tmp_path, timeline) == {
        "idle: python": 100 + 240,
        "idle: launch latency": 100,
        "compute": 450,
        "idle: device gap": 100,
        "idle: dispatching": 10,
    }


def test_the_host_cannot_outrun_the_window_that_holds_its_work(tmp_path: Path) -> None:
    """Steps are marked every 100 ns, each launches 300 ns of work: windows follow the device."""
    timeline = Timeline()
    timeline.steps(1000, 1100, 1200, 1300)
    for step in range(3):
        start = 1000 + 100 * step
        timeline.kernel(1010 + 300 * step, 1310 + 300 * step, launched=start + 5, name=f"work{step}")
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    bounds = [(window.start_ns, window.end_ns) for window in device.windows]
    assert bounds == [(1000, 1310), (1310, 1610), (1610, 1910)]


def test_two_streams_share_what_they_compute_at_once(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1600, launched=1000, name="a")
    timeline.kernel(1300, 2000, launched=1001, name="b", stream=9)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert {entry.detail: entry.ns for entry in device.ledger} == {"a": 450, "b": 550}


def test_shares_of_an_odd_nanosecond_still_sum(tmp_path: Path, timeline: Timeline) -> None:
    for stream, name in enumerate("abc"):
        timeline.kernel(1000, 2000, launched=1000, name=name, stream=stream)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert sorted(entry.ns for entry in device.ledger) == [333, 333, 334]


def test_compute_hides_communication_and_both_hide_copies(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1500, launched=1000)
    timeline.kernel(1200, 1800, launched=1001, name="ncclAllReduce", kind="collective", stream=8)
    timeline.kernel(1100, 1900, launched=1002, kind="copy", direction="HtoD pinned", stream=9)
    timeline.kernel(1900, 2000, launched=1003, kind="set", stream=9)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert [(entry.entry, entry.detail, entry.ns) for entry in device.ledger] == [
        ("compute", "gemm", 500),
        ("communication", "ncclAllReduce", 300),
        ("copy", "HtoD pinned", 100),
        ("copy", "set", 100),
    ]


def test_a_gap_before_a_receive_is_communication_but_a_late_host_is_not_its_fault(
    tmp_path: Path, timeline: Timeline
) -> None:
    timeline.kernel(1000, 1200, launched=1000)
    timeline.kernel(1500, 1600, launched=1100, name="ncclDevKernel_SendRecv", kind="collective")
    timeline.kernel(1900, 2000, launched=1850, name="ncclDevKernel_SendRecv", kind="collective")
    assert account(tmp_path, timeline) == {
        "compute": 200,
        "communication": 300 + 100 + 50 + 100,
        "idle: python": 250,
    }


def test_work_of_other_streams_is_clipped_and_carried(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.steps(1000, 2000, 3000)
    timeline.kernel(1000, 1900, launched=1000)
    timeline.kernel(1500, 2400, launched=1001, name="side", stream=9)
    timeline.kernel(2500, 3000, launched=2000)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert [(window.start_ns, window.end_ns) for window in device.windows] == [(1000, 2000), (2000, 3000)]
    assert device.carried_in_ms == pytest.approx(400 / 2 / 1e6)
    assert device.carried_out_ms == pytest.approx(400 / 2 / 1e6)


def test_a_gap_is_judged_whole_and_cut_at_the_window(tmp_path: Path) -> None:
    """The gap 1500 to 2500 crosses the mark at 2000; its work was launched at 2400."""
    timeline = Timeline()
    timeline.steps(1000, 2000, 3000, kind="train")
    timeline.kernel(1000, 1500, launched=1000)
    timeline.wait("input", 1600, 2300)
    timeline.kernel(2500, 3000, launched=2400)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert nanoseconds(device) == {
        "compute": 1000,
        "idle: input": 700,
        "idle: python": 200,
        "idle: launch latency": 100,
    }


def test_idle_after_the_last_work_is_the_marks_threads(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1200, launched=1000)
    timeline.wait("checkpoint", 1500, 1900)
    timeline.call("cudaMalloc", 1300, 1400, OTHER)
    assert account(tmp_path, timeline) == {"compute": 200, "idle: checkpoint": 400, "idle: python": 400}


def test_a_window_without_device_work_is_flagged(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.steps(1000, 2000, 3000)
    timeline.kernel(1000, 2000, launched=1000)
    timeline.op("aten::x", 2500, 3100)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    assert [problem.what for problem in examination.integrity.problems] == ["step-without-device-work"]
    assert not examination.integrity.ok
    assert nanoseconds(examination.devices[0])["compute"] == 1000


def test_a_window_is_not_said_to_lack_what_others_have_where_there_are_none(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.steps(1000, 2000)
    timeline.kernel(3000, 4000, launched=2500)
    (problem,) = examination_of(tmp_path / "s.fathom", timeline).integrity.problems
    assert problem.what == "step-without-device-work" and "others" not in problem.text


def test_a_burst_without_recorded_calls_is_lost_and_not_idle(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1600, launched=1000)
    timeline.burst = 4
    timeline.steps(5000, 7000, 9000)
    timeline.op("aten::mm", 5100, 8900)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    assert [(row.what, row.count) for row in examination.integrity.problems] == [("timeline-lost", 2)]
    assert nanoseconds(examination.devices[0]) == {"compute": 600, "idle: python": 400}


def test_a_burst_whose_calls_launched_nothing_counts(tmp_path: Path, timeline: Timeline) -> None:
    timeline.kernel(1000, 1600, launched=1000)
    timeline.burst = 4
    timeline.step(5000, 7000)
    timeline.call("cudaDeviceSynchronize", 6990, 6995)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    assert [row.what for row in examination.integrity.problems] == ["step-without-device-work"]


def test_work_that_starts_before_its_launch_is_flagged(tmp_path: Path, timeline: Timeline) -> None:
    timeline.step(2000, 20_000)
    timeline.kernel(1000, 2000, launched=1000)
    timeline.kernel(3000, 9000, launched=8000)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    assert [problem.what for problem in examination.integrity.problems] == ["early-start"]


def test_micro_steps_are_inside_their_window(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.step(1000, 2000)
    timeline.step(1000, 1500, kind="micro-step", parent=0)
    timeline.step(1500, 2000, kind="micro-step", parent=0)
    timeline.kernel(1000, 2000, launched=1000)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert [(window.start_ns, window.end_ns, window.kind, window.used) for window in device.windows] == [
        (1000, 2000, "train", True),
        (1000, 2000, "micro-step", False),  # all the work was launched in the first
        (2000, 2000, "micro-step", False),
    ]


def test_like_is_compared_with_like(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.step(1000, 2000)
    timeline.step(2000, 2300, kind="evaluation")
    timeline.step(2300, 3300)
    for start, end in ((1000, 2000), (2000, 2300), (2300, 3300)):
        timeline.kernel(start, end, launched=start)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert [window.used for window in device.windows] == [True, False, True]
    assert "train" in device.windows[1].why_not
    assert device.total_ms == pytest.approx(1000 / 1e6)


def test_windows_are_dropped_until_the_hosts_lead_settles(tmp_path: Path) -> None:
    """The host runs ahead at first; from the third step on it waits for the device."""
    timeline = Timeline()
    marks = [1000, 1400, 1800, 2800, 3800, 4800, 5800]
    timeline.steps(*marks)
    for step, mark in enumerate(marks[:-1]):
        timeline.kernel(1050 + 1000 * step, 2050 + 1000 * step, launched=mark + 10)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert [window.used for window in device.windows] == [False, False, True, True, True, True]
    assert "settled" in device.windows[0].why_not


@pytest.mark.parametrize("known", [True, False])
def test_a_step_in_which_the_machine_slept_does_not_enter_the_means(known: bool, tmp_path: Path) -> None:
    """In the third of five steps an hour passes without a record; what the import knows of it decides."""
    timeline, hour = Timeline(), 3600 * 10**9
    marks = [1000 * k + hour * (k > 2) for k in range(6)]
    timeline.steps(*marks)
    for mark in marks[:-1]:
        timeline.kernel(mark + 50, mark + 900, launched=mark + 10)
    problems = [Problem("silence", "nothing was recorded for 3,600 s")] if known else []
    examination = examination_of(tmp_path / "s.fathom", timeline, problems=problems)
    (device,) = examination.devices
    assert [window.used for window in device.windows] == [True, True, not known, True, True]
    assert ("nothing was recorded" in device.windows[2].why_not) == known
    assert (device.total_ms == pytest.approx(1e-3)) == known


def test_a_lone_step_in_which_the_machine_slept_is_all_there_is(tmp_path: Path) -> None:
    timeline, hour = Timeline(), 3600 * 10**9
    timeline.steps(0, 1000 + hour)
    timeline.kernel(50, 900, launched=10)
    timeline.kernel(hour + 50, hour + 900, launched=hour + 10)
    problems = [Problem("silence", "nothing was recorded for 3,600 s")]
    (device,) = examination_of(tmp_path / "s.fathom", timeline, problems=problems).devices
    assert [window.used for window in device.windows] == [True]


def test_without_a_mark_the_window_is_the_hosts(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.op("aten::mm", 1000, 1500)
    timeline.op("aten::mm", 1800, 2000)
    timeline.kernel(1100, 1900, launched=1050)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    (window,) = examination.devices[0].windows
    assert (window.start_ns, window.end_ns, window.kind) == (1000, 2000, "host")
    assert examination.step.kind == "host"
    assert any(absence.what == "windows" for absence in examination.abstained)


def test_bursts_are_kept_separate(tmp_path: Path) -> None:
    """Correlations begin anew in every burst, and no gap reaches from one into the next."""
    timeline = Timeline()
    for burst, start in ((0, 1000), (1, 50_000)):
        timeline.burst = burst
        timeline.steps(start, start + 1000, start + 2000)
        for step in (0, 1):
            begin = start + 1000 * step
            timeline.kernel(begin + 100, begin + 900, launched=begin + 50, correlation=step + 1)
    (device,) = devices_of(tmp_path / "s.fathom", timeline)
    assert len(device.windows) == 4
    assert nanoseconds(device) == {"compute": 3200, "idle: launch latency": 200, "idle: python": 600}


def test_every_device_and_rank_has_an_account(tmp_path: Path) -> None:
    first, second = Timeline(rank=0), Timeline(rank=1)
    for timeline in (first, second):
        timeline.step(1000, 2000)
        for device in (0, 1):
            timeline.kernel(1000, 2000 - 100 * device, launched=1000, device=device, thread=MAIN)
    examination = examination_of(tmp_path / "s.fathom", first, second)
    assert [(d.rank, d.device, nanoseconds(d)["compute"]) for d in examination.devices] == [
        (0, "cuda:0", 1000),
        (0, "cuda:1", 900),
        (1, "cuda:0", 1000),
        (1, "cuda:1", 900),
    ]


def test_launches_without_device_work_are_flagged(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.step(1000, 2000)
    timeline.call("cudaLaunchKernel", 1100, 1110, correlation=1)
    timeline.call("cudaGraphLaunch", 1200, 1210, correlation=2)
    examination = examination_of(tmp_path / "s.fathom", timeline)
    (problem,) = examination.integrity.problems
    assert (problem.what, problem.count) == ("device-work-missing", 2)
    assert not examination.integrity.ok
