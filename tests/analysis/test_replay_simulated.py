"""A replay with changed durations must take what the changed program takes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.recording import read_timeline
from fathom.analysis.replay import Replay, parse
from fathom.analysis.replay.recorded import windows_of
from fathom.units import NS_PER_MS
from tests.support.simulator import US, Do, Machine, simulate
from tests.support.timelines import ENGINE, Timeline, store_of

NAMES = ("gemm", "softmax")
WITHIN = 0.01
factors = st.sampled_from([0.25, 0.5, 0.8, 1.5])


def replay_of(made: Timeline) -> Replay:
    with tempfile.TemporaryDirectory() as folder:
        return Replay(store_of(Path(folder) / "s.fathom", made))


def truth(made: Timeline, like: Replay) -> float:
    """Milliseconds a step of another run of the program, over the same steps."""
    device = like.device
    assert device is not None
    with tempfile.TemporaryDirectory() as folder:
        timeline = read_timeline(store_of(Path(folder) / "s.fathom", made), 0)
        windows = windows_of(timeline, device.index)
        return float((windows.ends - windows.starts)[device.used].mean()) / NS_PER_MS


def agree(program: list[Do], machine: Machine, change: str, changed: Machine, steps: int = 6) -> None:
    replay = replay_of(simulate(program, machine, steps))
    result = replay.step_ms([parse(change)])
    expected = truth(simulate(program, changed, steps), replay)
    assert result == pytest.approx(expected, rel=WITHIN), (change, replay.step_ms(), replay.error)


def changed(machine: Machine, change: str, factor: float) -> tuple[str, Machine]:
    """The same change, as a replay and as the simulator know it."""
    every = dict.fromkeys([*NAMES], factor)
    known = {
        "all-kernels": replace(machine, kernel_factor=every),
        "family:softmax": replace(machine, kernel_factor={"softmax": factor}),
        "copy": replace(machine, kernel_factor={"copy": factor}),
        "communication": replace(machine, kernel_factor={"ncclDevKernel_AllReduce": factor}),
        "python": replace(machine, python_factor=factor),
        "gc": replace(machine, gc_factor=factor),
        "op:softmax": replace(machine, op_factor={"softmax": factor}),
        "launch": replace(machine, launch=round(machine.launch * factor)),
        "input": replace(machine, batch=round(machine.batch * factor), take=round(machine.take * factor)),
    }
    return f"{change}={factor}", known[change]


def launches(low: int, high: int, streams: tuple[int, ...] = (7,)) -> st.SearchStrategy[Do]:
    return st.builds(
        Do,
        what=st.just("launch"),
        ns=st.integers(2, 15).map(lambda us: us * US),
        work=st.integers(low, high).map(lambda us: us * US),
        name=st.sampled_from(NAMES),
        stream=st.sampled_from(streams),
    )


host = st.builds(Do, what=st.just("python"), ns=st.integers(1, 60).map(lambda us: us * US))
collection = st.builds(Do, what=st.just("gc"), ns=st.integers(100, 400).map(lambda us: us * US))
CHANGES = ("all-kernels", "family:softmax", "python", "op:softmax", "launch", "gc")


def programs(low: int, high: int, *others: st.SearchStrategy[Do]) -> st.SearchStrategy[list[Do]]:
    some = st.lists(st.one_of(launches(low, high), host, *others), min_size=10, max_size=40)
    return some.map(lambda made: [*made, Do("launch", 5 * US, 50 * US, "softmax")])


@settings(max_examples=8)
@given(programs(2, 15, collection), st.sampled_from(CHANGES), factors)
def test_where_launches_set_the_pace(program: list[Do], change: str, factor: float) -> None:
    agree(program, Machine(), *changed(Machine(), change, factor))


@settings(max_examples=8)
@given(programs(60, 400), st.sampled_from(CHANGES), factors)
def test_where_the_device_sets_the_pace(program: list[Do], change: str, factor: float) -> None:
    agree(program, Machine(), *changed(Machine(), change, factor))


item = st.just(Do("item", 3 * US, 4 * US))
full_sync = st.just(Do("sync", stream=None))


@settings(max_examples=8)
@given(programs(20, 300, item, full_sync), st.sampled_from([*CHANGES, "copy", "sync"]), factors)
def test_where_the_host_often_waits(program: list[Do], change: str, factor: float) -> None:
    program = [*program, Do("item", 3 * US, 4 * US)]
    if change == "sync":
        agree(program, Machine(), "sync=0", replace(Machine(), synchronous=False))
    else:
        agree(program, Machine(), *changed(Machine(), change, factor))


@settings(max_examples=7)
@given(programs(20, 200, item), st.sampled_from([*CHANGES, "input"]), factors)
def test_where_the_loader_sets_the_pace(program: list[Do], change: str, factor: float) -> None:
    machine = Machine(batch=25_000 * US)
    agree([Do("batch"), *program], machine, *changed(machine, change, factor))


@pytest.mark.parametrize("batch_ms", [1, 6, 15, 30])
@pytest.mark.parametrize("take_us", [20, 1500])
@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0])
def test_workers_hold_a_quicker_step_back_only_if_they_need_longer(
    batch_ms: int, take_us: int, factor: float
) -> None:
    """Two workers and steps of 10 ms: a batch that takes them 6 ms is there every 3 ms."""
    program = [Do("batch"), *[Do("launch", 15 * US, 1000 * US) for _ in range(10)], Do("sync", stream=None)]
    machine = Machine(batch=1000 * batch_ms * US, workers=2, take=take_us * US)
    what, quicker = changed(machine, "all-kernels", factor)
    replay = replay_of(simulate(program, machine, 40, 20))
    expected = truth(simulate(program, quicker, 40, 20), replay)
    # The first batch of the recording has no predecessor, and the time to hand out a late one is unknown.
    assert replay.step_ms([parse(what)]) == pytest.approx(expected, rel=0.08)
    assert replay.error < WITHIN


@settings(max_examples=7)
@given(st.lists(launches(20, 300), min_size=6, max_size=20), st.integers(50, 900), st.data())
def test_two_streams_that_wait_for_each_other(program: list[Do], reduce_us: int, data: st.DataObject) -> None:
    """As in data-parallel training: gradients are reduced beside the backward pass, the optimizer waits."""
    half = len(program) // 2
    reduce = Do("collective", 5 * US, reduce_us * US, stream=20)
    program = [
        *program[:half],
        Do("wait", stream=20, other=7),
        reduce,
        *program[half:],
        Do("wait", stream=7, other=20),
        Do("launch", 5 * US, 30 * US),
    ]
    change = data.draw(st.sampled_from(["all-kernels", "communication", "python"]))
    agree(program, Machine(), *changed(Machine(), change, data.draw(factors)))


@settings(max_examples=5)
@given(st.lists(launches(20, 120), min_size=8, max_size=20), st.sampled_from(CHANGES), factors)
def test_a_backward_pass_on_the_engines_thread(program: list[Do], change: str, factor: float) -> None:
    half = len(program) // 2
    program = [*program[:half], *(replace(value, thread=ENGINE) for value in program[half:])]
    agree(
        [*program, Do("launch", 5 * US, 50 * US, "softmax"), Do("item", 3 * US, 4 * US)],
        Machine(),
        *changed(Machine(), change, factor),
    )


@pytest.mark.parametrize("change", ["all-kernels=0.5", "all-kernels=0.05", "python=0"])
def test_a_full_queue_holds_the_host_back(change: str) -> None:
    """400 launches that wait for room a step; with work a twentieth as long, there always is."""
    program = [Do("launch", 2 * US, 40 * US) for _ in range(400)]
    machine = Machine(depth=300)
    what, _, factor = change.partition("=")
    agree(program, machine, *changed(machine, what, float(factor)), steps=5)


def test_what_is_hidden_gains_nothing() -> None:
    bound = replay_of(simulate([Do("launch", 20 * US, 5 * US)] * 20, Machine()))
    assert bound.gain([parse("all-kernels=0.1")]).ms == pytest.approx(0.0, abs=0.005)
    busy = replay_of(simulate([Do("launch", 5 * US, 200 * US)] * 20, Machine()))
    assert busy.gain([parse("python=0"), parse("launch=0")]).ms == pytest.approx(0.0, abs=0.005)
