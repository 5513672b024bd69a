"""Rules of the host, on signals made by hand, and what their signals read from recordings of an H200."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import fathom
from fathom.analysis.replay import Replay, parse
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.rules import Candidate
from fathom.diagnosis.signals import (
    Compiled,
    Computing,
    DriverCalls,
    Holds,
    HostLine,
    Preparation,
    Rare,
    Reserved,
    Searches,
    Signals,
)
from fathom.sounding.raw.importer import import_raw
from faults.kept import take
from tests.support.findings_fakes import compute, idle, raised, signals
from tests.support.findings_read import read
from tests.support.paths import RECORDINGS
from tests.support.probe_programs import launch
from tests.support.timelines import Timeline, store_of

SCRATCH = tempfile.TemporaryDirectory()
ALLOCATING = [compute("a", 8.0), idle("allocator", 2.0)]
LONG = {"step_mean_ms": 20.0, "step_stalled_ms": 10.0, "step_typical_ms": 10.0}
NO_SEARCH = Searches(0.0, 0.0, 0.0, "")


# allocations


@pytest.mark.parametrize(
    ("why", "kind"),
    [("room", "host-allocator-retries"), ("emptied", "host-empty-cache"), ("new", "host-cuda-malloc")],
)
def test_calls_are_classified_by_the_activity_of_the_allocator(why, kind):
    findings = raised(signals(ALLOCATING, host_asked=[DriverCalls(why, 3.0, 3.0, 2.0, 1.0)]), kind)
    assert set(findings) == {kind}
    assert findings[kind].part == 1.0 and sum(claim.ms for claim in findings[kind].claims) == 2.0


@pytest.mark.parametrize(
    "asked",
    [
        DriverCalls("new", 0.0, 8.0, 2.0, 0.25),  # sizes that were met in one step
        DriverCalls("new", 0.0, 0.2, 2.0, 1.0),
        DriverCalls("room", 200.0, 0.25, 40.0, 0.25),  # memory ran out once
        DriverCalls("search", 4.0, 4.0, 2.0, 1.0),  # another rule reports that
    ],
)
def test_sizes_that_are_new_once_are_no_finding(asked):
    assert raised(signals(ALLOCATING, host_asked=[asked]), "host-cuda-malloc") == {}


def test_a_cache_emptied_now_and_then_costs_what_long_steps_add():
    asked = [DriverCalls("emptied", 2.0, 2.0, 2.0, 0.25)]
    findings = raised(signals(ALLOCATING, host_asked=asked, **LONG), "host-empty-cache")
    assert findings["host-empty-cache"].gain_ms == 10.0 and not findings["host-empty-cache"].changes


# rare long steps


def test_a_rare_wait_costs_what_long_steps_add_not_what_it_lasts():
    given = signals([compute("a", 10.0)], host_waits_ms={"gc": 12.0}, **LONG)
    assert raised(given, "host-garbage-collection")["host-garbage-collection"].gain_ms == 10.0
    both = signals([compute("a", 10.0)], host_waits_ms={"gc": 3.0, "checkpoint": 9.0}, **LONG)
    findings = raised(both, "host-garbage-collection")
    assert (findings["host-garbage-collection"].gain_ms, findings["host-checkpoint"].gain_ms) == (2.5, 7.5)
    little = signals([compute("a", 10.0)], host_waits_ms={"gc": 1.0}, **LONG)
    assert raised(little, "host-garbage-collection")["host-garbage-collection"].gain_ms == 1.0


def test_a_wait_that_the_timeline_met_by_chance_costs_no_more_than_clean_steps_spend_in_it():
    ledger = [compute("a", 8.0), idle("gc", 2.0)]
    by_name = {
        spent: raised(signals(ledger, host_waits_ms={"gc": spent}), "host-garbage-collection")
        for spent in (0.1, 3.0)
    }
    assert by_name[0.1]["host-garbage-collection"].gain_ms == 0.1
    assert by_name[3.0]["host-garbage-collection"].changes == ("gc=0",)
    assert raised(signals(ledger), "host-garbage-collection")["host-garbage-collection"].changes


def test_on_a_processor_a_wait_gains_what_clean_steps_spend_in_it():
    """Steps that scatter make some look long: what those add is no bound on waits of every step."""
    ledger = [idle("gc", 90.0), compute("gemm", 10.0)]
    known = {"host_waits_ms": {"gc": 60.0}, "step_stalled_ms": 20.0, "step_mean_ms": 80.0}
    line = {"host_waiting_lines": {"gc": "train.py:7"}}
    findings = raised(signals(ledger, step_device="cpu", **known, **line), "host-garbage-collection")
    assert findings["host-garbage-collection"].gain_ms == 60.0
    assert findings["host-garbage-collection"].source == "train.py:7"


@pytest.mark.parametrize(
    ("versions", "kind"),
    [
        ({0: 7}, "host-recompilation"),
        ({0: 2, 1: 1, 2: 1}, "host-compiling-in-steps"),
        ({}, "host-compiling-in-steps"),
    ],
)
def test_compiling_one_function_again_is_told_from_compiling_another(versions, kind):
    known = {"host_waits_ms": {"compilation": 9.0}, "host_compiled": Compiled(versions, 1.0, 1.0, 0.0)}
    assert set(raised(signals([compute("a", 10.0)], **known, **LONG), kind)) == {kind}


def test_a_search_costs_what_long_steps_add_and_without_any_its_own_time():
    some = Searches(8.0, 1.0, 0.25, "aten::convolution")
    findings = raised(signals([], host_searches=some, **LONG), "host-autotuning")
    assert findings["host-autotuning"].gain_ms == 10.0
    always = Searches(8.0, 3.0, 1.0, "aten::convolution")
    assert raised(signals([], host_searches=always), "host-autotuning")["host-autotuning"].gain_ms == 8.0
    assert raised(signals([], host_searches=NO_SEARCH, **LONG), "host-autotuning") == {}


def logging(rare: Rare, **known: Any) -> dict[str, Candidate]:
    given = {**LONG, "host_searches": NO_SEARCH, **known}
    return raised(signals([], step_rare=rare, **given), "host-logging")


def test_long_steps_that_copy_to_the_host_are_logging_unless_they_are_known_for_something_else():
    assert logging(Rare(100.0, 5.0, 0.0, 1e8, {}))["host-logging"].gain_ms == 10.0
    assert logging(Rare(100.0, 5.0, 0.0, 1e8, {"checkpoint": 80.0})) == {}
    assert logging(Rare(100.0, 5.0, 5.0, 1e8, {})) == {}
    assert logging(Rare(100.0, 0.0, 0.0, 0.0, {})) == {}
    assert logging(Rare(100.0, 5.0, 0.0, 1e8, {}), step_stalled_ms=0.1) == {}
    assert logging(Rare(100.0, 5.0, 0.0, 1e8, {}), host_searches=Searches(0.0, 0.0, 0.0, "aten::mm")) == {}


# ops that prepare what they launch

ATTENTION = "aten::_cudnn_attention_forward"
PREPARED = Preparation(ATTENTION, 38.0, 38.0, 1.0, 0.975)  # as an H200 took for each new length


def test_what_a_library_prepares_is_its_own_cause_and_not_launching():
    ledger = [compute("a", 2.0), idle("dispatching", 48.0), idle("launch latency", 6.0)]
    given = signals(
        ledger, device_short_pauses_ms=16.0, host_preparations=[PREPARED], host_searches=NO_SEARCH
    )
    (built,) = raised(given, "host-autotuning").values()
    assert built.changes == (f'op:"{ATTENTION}"=0.0250',)
    launching = raised(given, "host-launch-bound")["host-launch-bound"]
    assert set(built.changes) <= set(launching.given) and launching.part == 1.0
    assert launching.evidence[0].value == pytest.approx(100 * 16 / 56)
    assert built.changes[0] in launching.check


@pytest.mark.parametrize(
    "slow_op",
    [
        replace(PREPARED, op="mine::preprocess"),  # which no library's planning explains
        replace(PREPARED, count=0.25),  # of shapes that came for the first time
        replace(PREPARED, ms=8.0, count=16.0),  # each as short as a look-up
        replace(PREPARED, idle_ms=0.1),  # behind the device's work
    ],
)
def test_other_ops_that_take_long_are_no_plans(slow_op):
    ledger = [compute("a", 2.0), idle("dispatching", 54.0)]
    given = signals(ledger, host_preparations=[slow_op], host_searches=NO_SEARCH)
    assert raised(given, "host-autotuning") == {}


@pytest.mark.parametrize(("clean_ms", "expected"), [(50.0, 1), (36.0, 1), (30.0, 0)])
def test_what_clean_steps_have_no_room_for_was_met_by_chance(clean_ms, expected):
    ledger = [compute("a", 2.0), idle("dispatching", 54.0)]
    given = signals(ledger, host_preparations=[PREPARED], host_searches=NO_SEARCH, step_mean_ms=clean_ms)
    assert len(raised(given, "host-autotuning")) == expected


def test_of_pauses_some_of_which_are_too_long_the_finding_says_its_share():
    given = signals([compute("a", 5.0), idle("dispatching", 95.0)], device_short_pauses_ms=38.0)
    (result,) = raised(given, "host-launch-bound").values()
    assert result.part == pytest.approx(0.4) and result.evidence[-1].value == pytest.approx(40.0)
    given = signals([compute("a", 5.0), idle("dispatching", 95.0)])
    assert len(raised(given, "host-launch-bound")["host-launch-bound"].evidence) == 3


def preparing(path: Path, inside: str, *, calls: bool) -> list[Preparation]:
    """Ten steps of 20 ms: the op `inside` another prepares for 10 ms and launches, or not; then two add."""
    made, ms = Timeline(), 10**6
    made.steps(*range(0, 220 * ms, 20 * ms))
    for k in range(10):
        start, first = 20 * k * ms, 4 * k
        for at, (name, above, begin, end) in enumerate(
            [
                ("aten::attention", None, 1, 12),
                (inside, first, 1, 12),
                ("aten::add", None, 13, 14),
                (inside, None, 15, 16),
            ]
        ):
            named = {"id": first + at, "parent": above, "name": name, "thread": 100, "kind": "op"}
            made.add("ops", **named, start_ns=start + begin * ms, end_ns=start + end * ms)
        launches = [(first + 1, 11, calls), (first + 2, 13, True), (first + 3, 15, calls)]
        for op, begin, launched in launches:
            at = start + begin * ms + 100
            number = made.kernel(at + 2000, at + 4000, None, name="k")
            api = "cudaLaunchKernel" if launched else "cudaGetLastError"
            row = {"api": api, "thread": 100, "correlation": number if launched else None}
            made.add("launches", **row, op=op if launched else None, start_ns=at, end_ns=at + 1000)
    return read(store_of(path, made).path)["host.preparations"]


def test_an_op_is_held_where_it_calls_nothing_for_long_before_it_launches(tmp_path):
    longest, *_ = preparing(tmp_path / "a.fathom", "cudnn::plan", calls=True)
    assert longest.op == "cudnn::plan" and longest.count == 2  # the innermost, in both of its calls
    assert longest.ms == pytest.approx(10 + 1 + 1, abs=0.02)
    assert longest.share == pytest.approx(1.0, abs=0.01)
    names = {item.op for item in preparing(tmp_path / "b.fathom", "cudnn::plan", calls=False)}
    assert "cudnn::plan" not in names  # ops without launches compute on the host
    names = {item.op for item in preparing(tmp_path / "c.fathom", "MyFunction", calls=True)}
    assert "MyFunction" not in names  # of the program, in Python


def test_memory_that_ever_more_of_is_of_no_use_is_fragmented():
    assert raised(signals(device_reserved=Reserved(1e9, 1e9, 1e8)), "host-fragmentation")
    assert raised(signals(device_reserved=Reserved(1e9, 1e9, 0.9e9)), "host-fragmentation") == {}
    assert raised(signals(device_reserved=Reserved(1e9, 1e8, 1e6)), "host-fragmentation") == {}


# the program's own Python

COMPUTING = Computing(22.0, 3.0, "train.py(17): metric")


def test_long_computations_in_python_are_told_beside_launches():
    ledger = [compute("a", 55.0), idle("python", 25.0), idle("dispatching", 18.0)]
    given = signals(ledger, device_short_pauses_ms=20.0, host_computing=COMPUTING)
    findings = raised(given, "host-python", "host-launch-bound")
    assert findings["host-python"].part == pytest.approx(22 / 25) and findings["host-python"].source
    assert findings["host-launch-bound"].part == pytest.approx(20 / 43)
    short = signals(ledger, host_computing=replace(COMPUTING, idle_ms=2.0))
    assert raised(short, "host-python") == {}


def test_what_other_threads_hold_up_is_no_computation():
    ledger = [compute("a", 5.0), idle("python", 60.0), idle("dispatching", 30.0)]
    given = signals(ledger, host_holds=Holds(90.0, 18.0, 9, 0.9), host_computing=COMPUTING)
    assert set(raised(given, "host-python", "host-thread-contention")) == {"host-thread-contention"}


def computing(path: Path, *, beside: bool = False, waits: bool = False, region: str = "") -> Computing:
    """Ten steps of 20 ms: an op, 10 ms of nothing, a launching op; a thread is `beside`, or it `waits`; all
    lies in a `region`."""
    made, ms = Timeline(), 10**6
    made.steps(*range(0, 220 * ms, 20 * ms))
    for k in range(10):
        start = 20 * k * ms
        for at, begin in enumerate((1, 12)):
            named = {"id": 100 + 3 * k + at, "parent": None, "name": "aten::add", "thread": 100, "kind": "op"}
            named |= {"parent": k if region else None}
            made.add("ops", **named, start_ns=start + begin * ms, end_ns=start + (begin + 1) * ms)
        if beside:
            named = {"id": 102 + 3 * k, "parent": None, "name": "AddBackward0", "thread": 101, "kind": "op"}
            made.add("ops", **named, start_ns=start + 2 * ms, end_ns=start + 12 * ms)
        if waits:
            made.wait("input", start + 2 * ms, start + 12 * ms)
        if region:
            named = {"id": k, "parent": None, "name": region, "thread": 100, "kind": "annotation"}
            made.add("ops", **named, start_ns=start, end_ns=start + 20 * ms - 1)
        at = start + 12 * ms + 100
        number = made.kernel(at + 2000, at + 4000, None, name="k")
        row = {"api": "cudaLaunchKernel", "thread": 100, "correlation": number, "op": 101 + 3 * k}
        made.add("launches", **row, start_ns=at, end_ns=at + 1000)
    return read(store_of(path, made).path)["host.computing"]


def test_python_computes_where_no_thread_is_in_an_op_and_nothing_is_waited_for(tmp_path):
    own = computing(tmp_path / "a.fathom")
    assert 10.0 < own.idle_ms < 18.0  # also from one step's last op to the next one's first
    assert computing(tmp_path / "b.fathom", beside=True).idle_ms == pytest.approx(own.idle_ms - 10.0, abs=0.1)
    waiting = computing(tmp_path / "c.fathom", waits=True)
    assert waiting.idle_ms == pytest.approx(own.idle_ms - 10.0, abs=0.1) and waiting.count < own.count
    for number, region in enumerate(("ProfilerStep#3", "augment")):
        assert computing(tmp_path / f"d{number}.fathom", region=region).idle_ms > own.idle_ms - 0.1
    for number, region in enumerate(("Optimizer.step#AdamW.step", "enumerate(DataLoader)#_Iter.__next__")):
        assert computing(tmp_path / f"e{number}.fathom", region=region).idle_ms < 1.0


# pauses


@pytest.mark.parametrize(
    ("holds", "kind"),
    [
        (Holds(90.0, 20.0, 9, 0.8), "host-thread-contention"),
        (Holds(90.0, 20.0, 1, 0.8), "host-python"),  # a separate computation, at one place
        (Holds(90.0, 20.0, 9, 0.2), "host-python"),
        (Holds(90.0, 1.0, 9, 0.8), "host-python"),
        (Holds(9.0, 20.0, 9, 0.8), "host-python"),
    ],
)
def test_pauses_of_a_turn_behind_different_ops_are_other_threads(holds, kind):
    given = signals([compute("a", 5.0), idle("python", 95.0)], device_short_pauses_ms=1.0, host_holds=holds)
    assert set(raised(given, kind)) == {kind}


def test_python_on_a_processor_is_found_by_its_share_of_the_step():
    known = {"step_device": "cpu", "step_mean_ms": 50.0, "host_ops": {"aten::mm": 12.0}}
    findings = raised(
        signals([LedgerRow("ops", "aten::mm", 40.0), idle("python", 60.0)], **known), "host-python"
    )
    assert findings["host-python"].gain_ms == pytest.approx(0.9 * 0.6 * 50.0)
    small = signals([LedgerRow("ops", "aten::mm", 80.0), idle("python", 20.0)], **known)
    assert "host-python" not in raised(small, "host-python")


def test_the_replay_that_checks_python_on_a_processor_saves_as_much_as_the_finding():
    known = {"step_device": "cpu", "step_mean_ms": 100.0, "host_ops": {"aten::mm": 12.0}}
    library = HostLine("idle: python", "main (ppo.py:106)", 40.0, "main", "/a/ppo.py:106", 0.0)
    rows = [LedgerRow("idle: python", "main (ppo.py:106)", 40.0), idle("python", 20.0)]
    ledger = [LedgerRow("ops", "aten::mm", 40.0), *rows]
    finding = raised(signals(ledger, host_lines=[library], **known), "host-python")["host-python"]
    left = float(finding.check.partition("python=")[2].rstrip("'"))
    assert finding.gain_ms == pytest.approx(0.9 * (20.0 + 40.0 / 2))
    assert (1 - left) * 60.0 == pytest.approx(finding.gain_ms, rel=0.01)
    assert "libraries" in finding.action and "torch.compile" in finding.remedy
    own = raised(signals(ledger, host_lines=[replace(library, own=1.0)], **known), "host-python")[
        "host-python"
    ]
    assert (own.action, own.remedy) == ("", ""), "the program's own code can move out of the step"


@pytest.mark.programs
def test_a_loop_in_python_is_found_on_a_processor_and_not_on_its_mended_twin(tmp_path):
    pytest.importorskip("torch")
    steps = {}
    for form in ("loop", "tensor"):
        (folder := tmp_path / form).mkdir()
        run = launch(folder, "returns.py", "90", form, plan={"steps": 10, "settle": 4, "depth": "timeline"})
        assert run.status == 0, run.err
        import_raw(folder, folder / "out.fathom")
        steps[form] = fathom.open(folder / "out.fathom").examine()
    (finding,) = [item for item in steps["loop"].findings if item.id == "host-python"]
    assert not any(item.id == "host-python" for item in steps["tensor"].findings)
    assert 0 < finding.low_ms < finding.high_ms < steps["loop"].step.clean_ms


def test_one_long_pause_in_an_op_is_not_launching():
    given = signals([compute("a", 5.0), idle("dispatching", 95.0)], device_short_pauses_ms=1.0)
    assert raised(given, "host-launch-bound") == {}


# recordings


@cache
def recorded(name: str) -> Signals:
    """Signals of a recording of the suite."""
    return read(take(RECORDINGS, f"{name}.2", Path(SCRATCH.name)))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("emptied_cache", "emptied"),
        ("uncached_allocations", "new"),
        ("near_the_limit", "room"),
        ("searched_convolutions", "search"),
    ],
)
def test_a_recording_tells_why_the_driver_was_asked(name, why):
    assert recorded(f"host.{name}.faulty")["host.asked"][0].why == why


@pytest.mark.parametrize("name", ["host.timed_parts.mended", "host.small_layers.faulty"])
def test_the_quickest_host_leaves_the_device_its_work(name):
    given = recorded(name)
    work = sum(row.ms for row in given["step.ledger"] if row.entry == "compute")
    replay: Replay = given["step.replay"]
    quick = replay.step_ms(
        [parse(change) for change in ("dispatching=0.02", "python=0.05", "launch-latency=0.2")]
    )
    assert 0.98 * work < quick < 2 * work


@pytest.mark.parametrize("name", ["host.small_layers.faulty", "host.metrics_in_python.faulty"])
def test_short_pauses_are_a_part_of_what_the_device_is_idle(name):
    given = recorded(name)
    pauses = sum(row.ms for row in given["step.ledger"] if row.entry.startswith("idle"))
    assert 0 < given["device.short_pauses_ms"] <= pauses * (1 + 1e-6)


@pytest.mark.parametrize("name", ["input.padding.faulty", "kernels.loss_by_hand.faulty"])
def test_work_of_other_sizes_is_not_held_up(name):
    assert recorded(name)["device.stretched"].ms == 0.0


def test_threads_that_hold_the_interpreter_are_seen_in_turns_of_five_milliseconds():
    values, alone = recorded("host.busy_threads.faulty"), recorded("host.busy_threads.mended")
    assert values["host.holds"].on_turns > 0.7 and values["host.holds"].count > 10
    assert alone["host.holds"].count == 0
