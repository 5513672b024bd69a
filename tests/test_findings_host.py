"""Rules of the host, on signals made by hand, and what their signals read from recordings of an H200."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fathom
from fathom.analysis import account
from fathom.analysis.replay import Replay, parse
from fathom.diagnosis.rules import Candidate
from fathom.diagnosis.signals import (
    Asked,
    Broken,
    Compiled,
    Computing,
    Held,
    Holds,
    Rare,
    Recorded,
    Reserved,
    Row,
    Searches,
    Signal,
    Signals,
    Stretched,
)
from fathom.sounding.raw.importer import import_raw
from tests.faults.kept import take
from tests.findings_fakes import compute, idle, raised, signals
from tests.probe_programs import launch
from tests.timelines import Timeline, store_of

KEPT = Path(__file__).parent / "data" / "faults"
SCRATCH = tempfile.TemporaryDirectory()
ALLOCATING = [compute("a", 8.0), idle("allocator", 2.0)]
LONG = {"step_mean_ms": 20.0, "step_stalled_ms": 10.0, "step_typical_ms": 10.0}
NO_SEARCH = Searches(0.0, 0.0, 0.0, "")


# allocations


@pytest.mark.parametrize(
    ("why", "kind"),
    [("room", "host-allocator-retries"), ("emptied", "host-empty-cache"), ("new", "host-cuda-malloc")],
)
def test_what_the_allocator_was_doing_tells_its_calls_apart(why, kind):
    found = raised(signals(ALLOCATING, host_asked=[Asked(why, 3.0, 3.0, 2.0, 1.0)]), kind)
    assert set(found) == {kind}
    assert found[kind].part == 1.0 and sum(claim.ms for claim in found[kind].claims) == 2.0


@pytest.mark.parametrize(
    "asked",
    [
        Asked("new", 0.0, 8.0, 2.0, 0.25),  # sizes that were met in one step
        Asked("new", 0.0, 0.2, 2.0, 1.0),
        Asked("room", 200.0, 0.25, 40.0, 0.25),  # memory ran out once
        Asked("search", 4.0, 4.0, 2.0, 1.0),  # of that another rule tells
    ],
)
def test_sizes_that_are_new_once_are_no_finding(asked):
    assert raised(signals(ALLOCATING, host_asked=[asked]), "host-cuda-malloc") == {}


def test_a_cache_emptied_now_and_then_costs_what_long_steps_add():
    asked = [Asked("emptied", 2.0, 2.0, 2.0, 0.25)]
    found = raised(signals(ALLOCATING, host_asked=asked, **LONG), "host-empty-cache")
    assert found["host-empty-cache"].gain_ms == 10.0 and not found["host-empty-cache"].changes


# rare long steps


def test_a_rare_wait_costs_what_long_steps_add_not_what_it_lasts():
    given = signals([compute("a", 10.0)], host_waits_ms={"gc": 12.0}, **LONG)
    assert raised(given, "host-garbage-collection")["host-garbage-collection"].gain_ms == 10.0
    both = signals([compute("a", 10.0)], host_waits_ms={"gc": 3.0, "checkpoint": 9.0}, **LONG)
    found = raised(both, "host-garbage-collection")
    assert (found["host-garbage-collection"].gain_ms, found["host-checkpoint"].gain_ms) == (2.5, 7.5)
    little = signals([compute("a", 10.0)], host_waits_ms={"gc": 1.0}, **LONG)
    assert raised(little, "host-garbage-collection")["host-garbage-collection"].gain_ms == 1.0


def test_a_wait_that_the_timeline_met_by_chance_costs_no_more_than_clean_steps_spend_in_it():
    ledger = [compute("a", 8.0), idle("gc", 2.0)]
    found = {
        spent: raised(signals(ledger, host_waits_ms={"gc": spent}), "host-garbage-collection")
        for spent in (0.1, 3.0)
    }
    assert found[0.1]["host-garbage-collection"].gain_ms == 0.1
    assert found[3.0]["host-garbage-collection"].changes == ("gc=0",)
    assert raised(signals(ledger), "host-garbage-collection")["host-garbage-collection"].changes


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
    found = raised(signals([], host_searches=some, **LONG), "host-autotuning")
    assert found["host-autotuning"].gain_ms == 10.0
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
PREPARED = Held(ATTENTION, 38.0, 38.0, 1.0, 0.975)  # as an H200 took for each new length


def test_what_a_library_prepares_is_its_own_cause_and_not_launching():
    ledger = [compute("a", 2.0), idle("dispatching", 48.0), idle("launch latency", 6.0)]
    given = signals(ledger, device_short_pauses_ms=16.0, host_held=[PREPARED], host_searches=NO_SEARCH)
    (built,) = raised(given, "host-autotuning").values()
    assert built.changes == (f'op:"{ATTENTION}"=0.0250',)
    launching = raised(given, "host-launch-bound")["host-launch-bound"]
    assert set(built.changes) <= set(launching.given) and launching.part == 1.0
    assert launching.evidence[0].value == pytest.approx(100 * 16 / 56)
    assert built.changes[0] in launching.check


@pytest.mark.parametrize(
    "one",
    [
        replace(PREPARED, op="mine::preprocess"),  # which no library's planning explains
        replace(PREPARED, count=0.25),  # of shapes that came for the first time
        replace(PREPARED, ms=8.0, count=16.0),  # each as short as a look-up
        replace(PREPARED, idle_ms=0.1),  # behind the device's work
    ],
)
def test_other_ops_that_take_long_are_no_plans(one):
    ledger = [compute("a", 2.0), idle("dispatching", 54.0)]
    given = signals(ledger, host_held=[one], host_searches=NO_SEARCH)
    assert raised(given, "host-autotuning") == {}


@pytest.mark.parametrize(("clean_ms", "found"), [(50.0, 1), (30.0, 0)])
def test_what_clean_steps_have_no_room_for_was_met_by_chance(clean_ms, found):
    ledger = [compute("a", 2.0), idle("dispatching", 54.0)]
    given = signals(ledger, host_held=[PREPARED], host_searches=NO_SEARCH, step_mean_ms=clean_ms)
    assert len(raised(given, "host-autotuning")) == found


def test_of_pauses_some_of_which_are_too_long_the_finding_says_its_share():
    given = signals([compute("a", 5.0), idle("dispatching", 95.0)], device_short_pauses_ms=38.0)
    (found,) = raised(given, "host-launch-bound").values()
    assert found.part == pytest.approx(0.4) and found.evidence[-1].value == pytest.approx(40.0)
    given = signals([compute("a", 5.0), idle("dispatching", 95.0)])
    assert len(raised(given, "host-launch-bound")["host-launch-bound"].evidence) == 3


def preparing(path: Path, inside: str, *, calls: bool) -> list[Held]:
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
    return read(store_of(path, made).path)["host.held"]


def test_an_op_is_held_where_it_calls_nothing_for_long_before_it_launches(tmp_path):
    longest, *_ = preparing(tmp_path / "a.fathom", "cudnn::plan", calls=True)
    assert longest.op == "cudnn::plan" and longest.count == 2  # the innermost, in both of its calls
    assert longest.ms == pytest.approx(10 + 1 + 1, abs=0.02)
    assert longest.share == pytest.approx(1.0, abs=0.01)
    names = {one.op for one in preparing(tmp_path / "b.fathom", "cudnn::plan", calls=False)}
    assert "cudnn::plan" not in names  # what launches nothing computes on the host
    names = {one.op for one in preparing(tmp_path / "c.fathom", "MyFunction", calls=True)}
    assert "MyFunction" not in names  # of the program, in Python


# the program's own Python

COMPUTING = Computing(22.0, 3.0, "train.py(17): metric")


def test_long_computations_in_python_are_told_beside_launches():
    ledger = [compute("a", 55.0), idle("python", 25.0), idle("dispatching", 18.0)]
    given = signals(ledger, device_short_pauses_ms=20.0, host_computing=COMPUTING)
    found = raised(given, "host-python", "host-launch-bound")
    assert found["host-python"].part == pytest.approx(22 / 25) and found["host-python"].source
    assert found["host-launch-bound"].part == pytest.approx(20 / 43)
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
            named = {"id": 3 * k + at, "parent": None, "name": "aten::add", "thread": 100, "kind": "op"}
            named |= {"parent": 100 + k if region else None}
            made.add("ops", **named, start_ns=start + begin * ms, end_ns=start + (begin + 1) * ms)
        if beside:
            named = {"id": 3 * k + 2, "parent": None, "name": "AddBackward0", "thread": 101, "kind": "op"}
            made.add("ops", **named, start_ns=start + 2 * ms, end_ns=start + 12 * ms)
        if waits:
            made.wait("input", start + 2 * ms, start + 12 * ms)
        if region:
            named = {"id": 100 + k, "parent": None, "name": region, "thread": 100, "kind": "annotation"}
            made.add("ops", **named, start_ns=start, end_ns=start + 20 * ms - 1)
        at = start + 12 * ms + 100
        number = made.kernel(at + 2000, at + 4000, None, name="k")
        row = {"api": "cudaLaunchKernel", "thread": 100, "correlation": number, "op": 3 * k + 1}
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
        (Holds(90.0, 20.0, 1, 0.8), "host-python"),  # a computation of its own, at one place
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
    found = raised(signals([Row("ops", "aten::mm", 40.0), idle("python", 60.0)], **known), "host-python")
    assert found["host-python"].gain_ms == pytest.approx(0.9 * 0.6 * 50.0)
    small = signals([Row("ops", "aten::mm", 80.0), idle("python", 20.0)], **known)
    assert "host-python" not in raised(small, "host-python")


@pytest.mark.torch
def test_a_loop_in_python_is_found_on_a_processor_and_not_on_its_mended_twin(tmp_path):
    pytest.importorskip("torch")
    steps = {}
    for form in ("loop", "tensor"):
        (folder := tmp_path / form).mkdir()
        run = launch(folder, "returns.py", "90", form, plan={"steps": 10, "settle": 4, "depth": "timeline"})
        assert run.status == 0, run.err
        import_raw(folder, folder / "out.fathom")
        steps[form] = fathom.open(folder / "out.fathom").examine()
    (found,) = [one for one in steps["loop"].findings if one["id"] == "host-python"]
    assert not any(one["id"] == "host-python" for one in steps["tensor"].findings)
    assert 0 < found["low_ms"] < found["high_ms"] < steps["loop"].step.clean_ms


def test_one_long_pause_in_an_op_is_not_launching():
    given = signals([compute("a", 5.0), idle("dispatching", 95.0)], device_short_pauses_ms=1.0)
    assert raised(given, "host-launch-bound") == {}


# compiled pieces, memory


def test_compiled_functions_that_go_on_within_another_are_a_broken_graph():
    known = {"step_idle_ms": 4.0, "step_mean_ms": 10.0}
    broken = signals([compute("a", 10.0)], host_compiled=Compiled({0: 1}, 7.0, 7.0, 3.0), **known)
    assert raised(broken, "host-graph-breaks")["host-graph-breaks"].gain_ms == 3.0
    layers = signals(
        [compute("a", 10.0)], host_compiled=Compiled({0: 1, 1: 1, 2: 1}, 24.0, 0.0, 0.0), **known
    )
    assert raised(layers, "host-graph-breaks") == {}


@pytest.mark.torch
@pytest.mark.parametrize(("how", "resumed"), [("within", 2.0), ("apart", 0.0)])
def test_what_is_behind_a_break_runs_within_what_is_before_it(tmp_path, how, resumed):
    pytest.importorskip("torch")
    run = launch(tmp_path, "breaks.py", how, "40", plan={"steps": 4, "settle": 4, "depth": "timeline"})
    assert run.status == 0, run.err
    import_raw(tmp_path, tmp_path / "out.fathom")
    compiled = read(tmp_path / "out.fathom")["host.compiled"]
    assert (compiled.regions, compiled.resumed) == (3.0, resumed)
    assert (compiled.between_ms > 0) == (resumed > 0)


LAUNCHING = [compute("a", 2.0), idle("dispatching", 5.0), idle("launch latency", 3.0)]
LOOP = Broken("forward", "net.py:34", "Tensor.item(); graph break in loop", 0.9)
KINDS = ("host-graph-breaks", "host-launch-bound")


def test_launches_of_a_frame_that_the_compiler_gave_up_are_its_break():
    known = {"host_compiled": Compiled({0: 1}, 0.0, 0.0, 0.0), "step_mean_ms": 10.0, "step_idle_ms": 8.0}
    plain = raised(signals(LAUNCHING, **known), *KINDS)
    broken = raised(signals(LAUNCHING, host_given_up=[LOOP], **known), *KINDS)
    assert (set(plain), set(broken)) == ({"host-launch-bound"}, {"host-graph-breaks"})
    launching, given_up = plain["host-launch-bound"], broken["host-graph-breaks"]
    for same in ("changes", "given", "spill", "part", "claims"):
        assert getattr(given_up, same) == getattr(launching, same)
    assert given_up.source == LOOP.place
    assert LOOP.why in given_up.evidence[0].text and given_up.evidence[0].value == 90.0


@pytest.mark.parametrize(
    ("regions", "frames"),
    [
        (1.0, [LOOP]),  # the step runs something compiled
        (0.0, [replace(LOOP, share=0.2)]),  # most of it was never to be compiled
        (0.0, []),
        (0.0, Signal(None, "", "nothing was compiled")),
    ],
)
def test_launches_that_no_break_explains_stay_launches(regions, frames):
    known = {"host_compiled": Compiled({0: 1}, regions, 0.0, 0.0), "host_given_up": frames}
    assert set(raised(signals(LAUNCHING, **known), *KINDS)) == {"host-launch-bound"}


def test_a_step_that_waits_for_no_launch_has_nothing_to_gain_from_one_graph():
    known = {"host_compiled": Compiled({0: 1}, 0.0, 0.0, 0.0), "host_given_up": [LOOP]}
    assert raised(signals([compute("a", 9.9), idle("dispatching", 0.1)], **known), *KINDS) == {}


def test_launches_are_told_where_no_compiler_was_looked_for():
    assert set(raised(signals(LAUNCHING), "host-launch-bound")) == {"host-launch-bound"}


def test_a_broken_graph_names_its_reasons_with_the_most_places_first():
    places = [
        Broken("f", "net.py:3", "print"),
        Broken("f", "net.py:7", "item"),
        Broken("g", "net.py:9", "item"),
    ]
    known = {"step_idle_ms": 4.0, "step_mean_ms": 10.0, "host_breaks": places}
    given = signals([compute("a", 10.0)], host_compiled=Compiled({0: 1}, 7.0, 7.0, 3.0), **known)
    told = raised(given, "host-graph-breaks")["host-graph-breaks"].evidence[2:]
    assert [(one.text, one.value) for one in told] == [
        ("break at net.py:7: item", 2),
        ("break at net.py:3: print", 1),
    ]


GIVEN_UP = {"loop": ["looping"], "between": [], "none": [], "elsewhere": []}


@pytest.mark.torch
@pytest.mark.parametrize("how", [*GIVEN_UP, "eager"])
def test_what_dynamo_gave_up_is_told_where_the_step_runs_it(tmp_path, how):
    pytest.importorskip("torch")
    run = launch(tmp_path, "given_up.py", how, "40", plan={"steps": 4, "settle": 4, "depth": "timeline"})
    assert run.status == 0, run.err
    store = import_raw(tmp_path, tmp_path / "out.fathom")
    assert store.manifest.problems == []
    given = read(tmp_path / "out.fathom")
    if how == "eager":
        assert not run.of("dynamo") and given.get("host.given_up").why.startswith("nothing was compiled")
        return
    found = given["host.given_up"]
    assert [one.function for one in found] == GIVEN_UP[how]
    assert all(one.share > 0.9 and one.place.endswith("given_up.py:15") for one in found)
    assert [one.place.rpartition(":")[2] for one in given["host.breaks"]] == ["22"] * (how == "between")
    assert (given["host.compiled"].regions > 0) == (how in ("between", "none"))


def test_memory_that_ever_more_of_is_of_no_use_is_fragmented():
    assert raised(signals(device_reserved=Reserved(1e9, 1e9, 1e8)), "host-fragmentation")
    assert raised(signals(device_reserved=Reserved(1e9, 1e9, 0.9e9)), "host-fragmentation") == {}
    assert raised(signals(device_reserved=Reserved(1e9, 1e8, 1e6)), "host-fragmentation") == {}


# other processes and threads


def test_kernels_that_are_held_up_whatever_they_are_share_their_device():
    ledger = [compute("a", 6.0), compute("b", 4.0)]
    held = raised(signals(ledger, device_stretched=Stretched(4.0, 2.0, 2)), "device-other-process")
    assert held["device-other-process"].changes == ("all-kernels=0.600000",)
    for other in (Stretched(4.0, 2.0, 1), Stretched(0.1, 2.0, 2)):
        assert raised(signals(ledger, device_stretched=other), "device-other-process") == {}


@pytest.mark.parametrize(("busy", "cores", "raises"), [(16.0, 16, True), (12.0, 16, False), (8.0, 8, False)])
def test_workers_that_keep_more_cores_busy_than_they_are_run_threads(busy, cores, raises):
    known = {"input_workers": 9, "host_busy_cores": busy, "host_cores": cores}
    found = raised(signals([compute("a", 5.0), idle("input", 5.0)], **known), "host-cpu-oversubscription")
    assert bool(found) == raises


def crowding(threads: int | None = 4, workers: int = 12, **more: Any) -> Signals:
    """A step of 10 ms, half of it waiting for workers of 16 cores that take 160 ms for a batch."""
    known = {"input_workers": workers, "input_lost_ms": 5.0, "host_cores": 16, "host_busy_cores": 10.0}
    told = {} if threads is None else {"input_threads": threads}
    stages = {"input_stages_ms": {"fetch": 160.0, "read": 1.0, "decode": 0.0}}
    return signals([compute("a", 5.0), idle("input", 5.0)], **known | told | stages | more)


CLAIMING = ("host-cpu-oversubscription", "input-slow-transform", "input-pinning")


def test_threads_of_workers_beyond_the_cores_are_what_the_step_waits_for():
    (found,) = raised(crowding(), *CLAIMING).values()
    assert found.kind == "host-cpu-oversubscription" and found.gain_ms == 5.0
    assert [(claim.entry, claim.ms) for claim in found.claims] == [("idle: input", 5.0)]
    assert (48, "threads") in [(line.value, line.unit) for line in found.evidence]
    assert not any(line.unit == "%" for line in found.evidence)


def test_waiting_for_a_processor_is_told_where_it_is_known():
    found = raised(crowding(input_cpu_wait_share=0.4), *CLAIMING)["host-cpu-oversubscription"]
    assert [line.value for line in found.evidence if line.unit == "%"] == [pytest.approx(40.0)]


def test_threads_are_at_fault_however_quick_most_batches_are():
    """Batches that take 16 ms mostly, and then a second for many in a row, keep up by their median."""
    found = raised(crowding(input_stages_ms={"fetch": 16.0}), *CLAIMING)
    assert set(found) == {"host-cpu-oversubscription"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (crowding(1), "input-slow-transform"),
        (crowding(None), "input-slow-transform"),
        (crowding(4, workers=4), "input-slow-transform"),  # 16 threads for 16 cores
        (crowding(input_cpu_wait_share=0.01), "input-slow-transform"),  # they do not use their threads
        (crowding(input_stages_ms={"fetch": 160.0, "decode": 120.0}), "input-slow-decode"),
        (
            crowding(input_stages_ms={"fetch": 160.0, "read": 120.0}, input_read_bytes=1e8),
            "input-storage-bound",
        ),
        (crowding(input_stages_ms={"fetch": 16.0, "pin": 9.0}), "input-pinning"),
    ],
)
def test_what_takes_one_thread_or_has_its_core_is_no_crowd(given, kind):
    assert set(raised(given, *CLAIMING)) == {kind}


def test_workers_that_sleep_until_other_threads_are_done_do_not_read():
    stages = {"fetch": 160.0, "read": 120.0}
    found = raised(crowding(input_stages_ms=stages, input_read_bytes=136.0), *CLAIMING)
    assert set(found) == {"host-cpu-oversubscription"}


@pytest.mark.parametrize("given", [crowding(input_lost_ms=0.0), crowding(workers=0)])
def test_who_does_not_wait_or_has_no_workers_has_no_crowd(given):
    assert "host-cpu-oversubscription" not in raised(given, *CLAIMING)


def test_busy_cores_that_tell_of_other_libraries_leave_nothing_to_the_loader():
    found = raised(crowding(1, workers=9, host_busy_cores=16.0), *CLAIMING)
    assert set(found) == {"host-cpu-oversubscription"} and found[CLAIMING[0]].confidence < 0.85


@pytest.mark.parametrize(
    ("usable", "quota", "known"), [(32, None, True), (16, None, False), (32, 8.0, False)]
)
def test_busy_cores_are_the_program_s_where_it_may_use_them_all(usable, quota, known, monkeypatch):
    from fathom.diagnosis.signals import input as loading

    monkeypatch.setattr(loading, "busy_percent", lambda _: 50.0)
    cpu = {"logical_cores": 32, "usable_cores": usable, "quota_cores": quota}
    given = Signals(None, Recorded(None, {"host": {"cpu": cpu}}, None, None))
    assert given.get("host.busy_cores").value == (16.0 if known else None)


# recordings


@cache
def recorded(name: str) -> Signals:
    """Signals of a recording of the suite."""
    return read(take(KEPT, f"{name}.2", Path(SCRATCH.name)))


def read(path: Path) -> Signals:
    from fathom.diagnosis.examine import _step

    store = fathom.open(path).store
    rank = account(store, 0, store.machine)
    return Signals(None, Recorded(store, store.machine, rank, _step([rank])))


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


def test_a_recorded_step_of_an_uncompiled_frame_is_a_broken_graph(tmp_path):
    """An H200's: Dynamo gave up the frame that the step runs in; with another, or none, it is no cause."""
    path = take(KEPT, "host.broken_graphs.faulty.2", tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    facts = manifest["ranks"][0]["facts"]
    (frame,) = facts["compiler"]["given_up"]
    elsewhere = {**facts["compiler"], "given_up": [{**frame, "function": "elsewhere"}]}
    broken, plain, other = (
        examined_with(path, manifest, compiler) for compiler in (facts["compiler"], None, elsewhere)
    )
    assert frame["function"] == "forward" and broken[0]["id"] == "host-graph-breaks"
    assert sum(one["id"] in KINDS for one in broken) == 1
    assert plain[0]["id"] == other[0]["id"] == "host-launch-bound"
    assert (broken[0]["gain_ms"], broken[0]["claims"]) == (plain[0]["gain_ms"], plain[0]["claims"])


def examined_with(path, manifest, compiler):
    """The findings where Dynamo had told that."""
    manifest["ranks"][0]["facts"]["compiler"] = compiler
    (path / "manifest.json").write_text(json.dumps(manifest))
    return fathom.open(path).examine().findings


def test_threads_that_hold_the_interpreter_are_seen_in_turns_of_five_milliseconds():
    held, alone = recorded("host.busy_threads.faulty"), recorded("host.busy_threads.mended")
    assert held["host.holds"].on_turns > 0.7 and held["host.holds"].count > 10
    assert alone["host.holds"].count == 0
