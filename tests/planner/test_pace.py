"""Plans with the host's measured pace: a slow host sets the step, a fast one changes nothing."""

from __future__ import annotations

import math

import pytest

import fathom
from fathom.analysis import BACKWARD, FORWARD, OPTIMIZER, Operators, operators_of
from fathom.machine import Ceiling, to_records
from fathom.planner.training import check_recorded
from fathom.planner.training.pace import DEVICE, HOST, pace_of
from tests.support.paths import EXAMPLES

GPT = EXAMPLES / "train_gpt-counters-h200.fathom.zip"
PHASES = ("forward", "backward", "optimizer", "foreach", "fused")


def paces(kind: str, python: float = 0.25, **seconds: float) -> list[Ceiling]:
    return [
        Ceiling(
            id=f"{kind}.{phase}", value=value, unit="s", low=value, high=value, samples=9,
            at={"operators": 100, "python": python},
        )
        for phase, value in seconds.items()
    ]  # fmt: skip


def called(waits: bool = False, at_once: str = "") -> Operators:
    counts = {("aten::mm", FORWARD): 10.0, ("aten::mm", BACKWARD): 20.0, ("aten::add_", OPTIMIZER): 4.0}
    return Operators(counts, parameters=8.0, at_once=at_once, waits=waits)


def plain(waits: bool = False):
    ceilings = paces(DEVICE, forward=2e-3, backward=1e-3, optimizer=5e-3)
    return pace_of(ceilings, called(waits), DEVICE, 0)


def test_the_host_takes_its_pace_for_each_operator():
    pace = plain()
    assert [pace.total(phase) for phase in (FORWARD, BACKWARD, OPTIMIZER)] == pytest.approx([20, 20, 20])
    assert pace.outside == pytest.approx(0.25 * 60)
    # inside operators, those of the forward pass take 1.5 ms, those of the backward pass half of it
    assert pace.called("aten::mm") == pytest.approx((10 * 1.5 + 20 * 0.75) / 30)
    inside = sum(pace.called(name) * count for (name, _), count in called().counts.items())
    assert inside + pace.outside == pytest.approx(60)


def test_operators_take_the_pace_of_their_name_and_others_the_mean():
    forward, backward, optimizer = paces(HOST, forward=1e-3, backward=1e-3, optimizer=1e-3)
    forward.series.append({"name": "aten::mm", "value": 3e-3, "python": 0.5})
    optimizer.at.update({"python": 1.0, "step": 7e-3, "parameter": 2e-3})
    pace = pace_of([forward, backward, optimizer], called(), HOST, None)
    assert pace.total(FORWARD) == pytest.approx(10 * 3)
    assert pace.total(BACKWARD) == pytest.approx(20 * 1)
    assert pace.total(OPTIMIZER) == pytest.approx(4 * 1 + 7 + 8 * 2)
    assert pace.outside == pytest.approx(15 + 20 * 0.25 + 4 + 7 + 16)
    assert pace.called("aten::mm") == pytest.approx((10 * 1.5 + 20 * 0.75) / 30)
    assert pace.unknown() == pytest.approx(24 / 34)


def cold(ceiling: Ceiling) -> Ceiling:
    ceiling.at.update({"cold": 3 * ceiling.value, "cold_python": 0.5, "spread": 0.4})
    ceiling.series.append({"name": "aten::mm", "value": 1e-3, "cold": 5e-3, "cold_python": 0.6})
    ceiling.series.append({"name": "aten::view", "value": 1e-3, "cold": 2e-3})
    return ceiling


def test_code_that_other_code_evicts_makes_operators_slower():
    forward, backward, optimizer = map(cold, paces(HOST, forward=1e-3, backward=1e-3, optimizer=1e-3))
    pace = pace_of([forward, backward, optimizer], called(), HOST, None)
    share = 3 / 6  # the step calls three of the operators by phase, six were measured
    assert pace.total(FORWARD) == pytest.approx(10 * (1 + share * 4))
    assert pace.total(OPTIMIZER) == pytest.approx(4 * (1 + share * 2))  # add_ takes the mean of all
    outside = share * (10 + 20) * 5 * 0.6 + 4 * (share * 3 * 0.5 + (1 - share) * 0.25)
    assert pace.outside == pytest.approx(outside)
    assert pace.error == pytest.approx(0.4 * sum(map(pace.total, (FORWARD, BACKWARD, OPTIMIZER))))


def test_an_optimizer_on_lists_takes_the_pace_of_its_name():
    ceilings = paces(HOST, forward=1e-3, backward=1e-3, foreach=5e-3)
    rows = (("AdamW", 9, 5e-3), ("SGD", 1, 1e-3), ("SGD", 3, 2e-3))
    ceilings[-1].series.extend({"name": name, "calls": calls, "value": value} for name, calls, value in rows)
    counts = called().counts
    for optimizer, on_lists, each in (("AdamW", 9, 5), ("SGD", 1, 1), ("SGD", 3, 2), ("Own", 4, 2)):
        step = Operators(counts, parameters=8.0, at_once="foreach", on_lists=on_lists, optimizer=optimizer)
        assert pace_of(ceilings, step, HOST, None).total(OPTIMIZER) == pytest.approx(8 * each)


def test_an_optimizer_on_lists_takes_time_for_the_step_and_for_each_parameter():
    ceilings = paces(HOST, forward=1e-3, backward=1e-3, foreach=5e-3)
    ceilings[-1].series.append({"name": "Adam", "calls": 9, "value": 4e-3, "step": 0.1, "parameter": 2e-3})
    for parameters in (5.0, 50.0):
        step = Operators(called().counts, parameters=parameters, at_once="foreach", optimizer="Adam")
        assert pace_of(ceilings, step, HOST, None).total(OPTIMIZER) == pytest.approx(100 + 2 * parameters)


def test_a_step_takes_the_longer_of_host_and_device():
    assert plain().step({FORWARD: 5.0, BACKWARD: 30.0, OPTIMIZER: 5.0}) == pytest.approx(60)
    assert plain().step({FORWARD: 50.0, BACKWARD: 30.0, OPTIMIZER: 5.0}) == pytest.approx(85)


@pytest.mark.parametrize(
    ("work", "step"),
    [
        ((0.0, 50.0, 0.0), 70.0),  # the backward pass cannot begin before the forward pass is launched
        ((50.0, 0.0, 0.0), 60.0),  # the device works while the host launches the rest
        ((0.0, 0.0, 50.0), 90.0),
        ((30.0, 30.0, 30.0), 90.0),
    ],
)
def test_a_program_that_waits_for_the_device_begins_without_a_lead(work, step):
    phases = dict(zip((FORWARD, BACKWARD, OPTIMIZER), work, strict=True))
    assert plain(waits=True).step(phases) == pytest.approx(step)


def test_an_optimizer_of_all_parameters_takes_its_pace_for_each_parameter():
    ceilings = paces(HOST, forward=1e-3, backward=1e-3, optimizer=9.0, fused=2e-3)
    assert pace_of(ceilings, called(at_once="fused"), HOST, None).total(OPTIMIZER) == pytest.approx(16)
    assert pace_of(ceilings, called(at_once="foreach"), HOST, None) is None  # was not measured


@pytest.fixture(scope="module")
def gpt():
    sounding = fathom.open(GPT)
    return sounding.examine(), sounding.store.machine, operators_of(sounding.store, 0)


def with_pace(machine, seconds: float):
    rows = to_records(paces(DEVICE, **dict.fromkeys(PHASES, seconds)))
    return {**machine, "ceilings": [*machine["ceilings"], *({**row, "device": 0} for row in rows)]}


def entries(checked):
    return {row.name: row.planned_ms for row in checked.entries}


def test_a_machine_file_without_a_pace_plans_as_before(gpt):
    examination, machine, operators = gpt
    assert entries(check_recorded(examination, machine, operators)) == entries(
        check_recorded(examination, machine)
    )


def test_a_fast_host_changes_nothing_and_a_slow_one_sets_the_step(gpt):
    examination, machine, operators = gpt
    before = entries(check_recorded(examination, machine))
    fast = entries(check_recorded(examination, with_pace(machine, 1e-6), operators))
    assert fast == pytest.approx(before)
    slow = entries(check_recorded(examination, with_pace(machine, 1e-5), operators))
    host = 1e-2 * (operators.total(FORWARD) + operators.total(BACKWARD) + operators.parameters)
    assert sum(slow.values()) == pytest.approx(host)
    assert {name: ms for name, ms in slow.items() if name != "idle"} == pytest.approx(
        {name: ms for name, ms in before.items() if name != "idle"}
    )


def test_the_interval_is_the_error_of_the_pace_in_other_surroundings(gpt):
    examination, machine, operators = gpt
    ceilings = paces(DEVICE, **dict.fromkeys(PHASES, 1e-5))
    for ceiling in ceilings:
        ceiling.at["spread"] = 0.5
    rows = [{**row, "device": 0} for row in to_records(ceilings)]
    checked = check_recorded(examination, {**machine, "ceilings": [*machine["ceilings"], *rows]}, operators)
    step = sum(row.planned_ms for row in checked.entries)
    # the host sets the step, and four of five values of a normal distribution are this near to its mean
    factor = math.exp(0.5 * 1.2816)
    assert (checked.low_ms, checked.high_ms) == pytest.approx((step / factor, step * factor), rel=0.02)
    assert f"({checked.low_ms:.4g} to {checked.high_ms:.4g})" in checked.verdict


def test_without_a_measured_error_the_interval_is_that_of_other_programs(gpt):
    examination, machine, operators = gpt
    checked = check_recorded(examination, with_pace(machine, 1e-5), operators)
    step = sum(row.planned_ms for row in checked.entries)
    assert checked.low_ms < 0.75 * step and 1.33 * step < checked.high_ms
    without = check_recorded(examination, machine, operators)  # without a pace
    assert without.low_ms is None and without.high_ms is None and " to " not in without.verdict
