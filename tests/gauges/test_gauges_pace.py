"""The host's pace: seconds of the host for each operator, in the phases of a step of small layers."""

from __future__ import annotations

from collections import Counter
from functools import cache
from time import perf_counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fathom.gauges import host_pace, pacing, stacks
from fathom.gauges.catalogue import PACES
from fathom.gauges.job import GaugeJob
from fathom.gauges.timer import Sample

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("pace")]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Torch's threads would spin while other tests use the cores; reading recordings takes the most time."""
    monkeypatch.setattr(host_pace, "cores", lambda: 1)
    monkeypatch.setattr(pacing, "PROFILED", 2)


def measured(phase: str):
    """The pace of a phase."""
    name = f"host.pace.{phase}"
    return host_pace.GAUGES[name](GaugeJob(ids=(name,), pace=0.01))


paced = cache(measured)  # once for all tests


@pytest.mark.parametrize("phase", PACES)
def test_the_host_has_a_pace_for_each_phase(phase):
    items = paced(phase)
    assert (items.id, items.unit) == (f"host.pace.{phase}", "s")
    assert 1e-8 < items.low <= items.value <= items.high < 1e-2
    assert 0 <= items.at["python"] <= 1
    if phase in PACES[:3]:
        assert 1e-8 < items.at["cold"] < 1e-2 and 0 <= items.at["spread"] < 5


def test_gradients_are_as_before_when_a_gauge_ends():
    with torch.no_grad():
        measured("foreach")
        assert not torch.is_grad_enabled()


class Called(TorchDispatchMode):
    """Counts the operators that reach the backend, by their schemas."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names[function._schema.name] += 1
        return function(*args, **(kwargs or {}))


def stack(layers: int = stacks.LAYERS, **optimizer: bool):
    with torch.enable_grad():
        made = pacing.PacedStack(torch, "cpu", layers=layers, **optimizer)
        made.timed(pacing.FORWARD, perf_counter)(3)
        return made


def test_the_operators_are_all_that_reach_the_backend_and_those_that_call_them():
    made = stack(foreach=False)
    with torch.enable_grad():
        with Called() as called:
            made.forward()
        made.backward()
        made.optimize()
        seen = pacing.profiled(torch, [made])[0][pacing.FORWARD].operators
        assert seen.total() > called.names.total()


def test_operators_grow_with_the_layers_and_gradients_do_not_pile_up():
    small, large = stack(foreach=False), stack(2 * stacks.LAYERS, foreach=False)
    with torch.enable_grad():
        seen = [*pacing.profiled(torch, [small]), *pacing.profiled(torch, [small, large])]
    for phase in (pacing.FORWARD, pacing.BACKWARD, pacing.OPTIMIZER):
        counts = [passed[phase].operators.total() for passed in seen]
        assert counts[0] == counts[1] and 1.5 < counts[2] / counts[0] < 2.1


@pytest.mark.parametrize("at_once", ["foreach", "fused"])
def test_an_optimizer_of_all_parameters_is_counted_by_parameters(at_once):
    made = stack(**{at_once: True})
    with torch.enable_grad():
        made.forward()
        made.backward()
        with Called() as called:
            made.optimize()
    assert any(f"_{at_once}_" in name for name in called.names)
    assert paced(at_once).at["parameters"] == len(stack(pacing.DEEP, **{at_once: True}).parameters)


@pytest.mark.parametrize("kind", stacks.KINDS, ids=lambda kind: kind.layers.__name__)
def test_each_kind_of_layers_trains(kind):
    with torch.enable_grad():
        made = pacing.PacedStack(torch, "cpu", kind, foreach=False)
        before = [parameter.clone() for parameter in made.parameters]
        for work in made.steps.values():
            work()
    assert all(parameter.grad is None for parameter in made.parameters)
    changed = [not torch.equal(old, new) for old, new in zip(before, made.parameters, strict=True)]
    assert sum(changed) > len(changed) / 2


@pytest.mark.parametrize("at_once", ["foreach", "fused"])
def test_optimizers_of_all_parameters_have_their_own_pace(at_once):
    rows = {row["name"]: row for row in paced(at_once).series if row["name"] != "SGD"}
    assert {"AdamW", "Adam"} <= set(rows)
    made = stack(**{at_once: True})  # AdamW
    with torch.enable_grad():
        made.forward()
        made.backward()
        with Called() as called:
            made.optimize()
    on_lists = sum(count for name, count in called.names.items() if name.startswith(pacing.LISTS))
    assert rows["AdamW"]["calls"] == on_lists
    for row in rows.values():
        assert row["step"] + row["parameter"] * row["parameters"] == pytest.approx(
            row["parameters"] * row["value"]
        )
        assert row["step"] >= 0 and row["parameter"] >= 0


@pytest.mark.parametrize("phase", PACES[:3])
def test_the_operators_and_the_rest_of_a_phase_take_its_time(phase):
    ceiling = paced(phase)
    with torch.enable_grad():
        made = [pacing.PacedStack(torch, "cpu", kind, foreach=False) for kind in stacks.KINDS]
        for each in made:
            pacing._warm(each)
        counts = Counter()
        for seen in pacing.profiled(torch, made):
            counts.update(seen[phase].operators)
    assert counts.total() == ceiling.at["operators"]
    assert set(counts) == {row["name"] for row in ceiling.series}
    in_operators = sum(counts[row["name"]] * row["value"] for row in ceiling.series)
    assert 0.2 < in_operators / (counts.total() * ceiling.value) <= 1.05
    cold = sum(counts[row["name"]] * row["cold"] for row in ceiling.series)
    assert cold == pytest.approx(counts.total() * ceiling.at["cold"])


def phase(inside, outside, **counts):
    return pacing.Profiled(Counter(a=10, b=10), inside, outside, **counts)


def test_recording_takes_its_time_around_each_operator():
    # ten of a, which no operator calls, and in each of them one of b
    around = {"outermost": Counter(a=10), "nested": Counter(a=10)}
    seen = phase({"a": 30.0, "b": 12.0}, {"a": 18.0}, **around)
    own = pacing.Paced(seen, Sample((40.0,), 1), parameters=0).divided()
    assert own.inside == pytest.approx({"a": 20.0, "b": 12.0})
    assert own.outside == pytest.approx({"a": 8.0})
    assert own.seconds == pytest.approx(40.0)


def test_an_operator_keeps_a_share_of_its_recorded_time():
    seen = phase({"a": 1.0, "b": 59.0}, {"a": 40.0}, outermost=Counter(a=10), nested=Counter(a=10))
    own = pacing.Paced(seen, Sample((20.0,), 1), parameters=0).divided()
    assert own.inside["a"] > 0 and own.seconds == pytest.approx(20.0)


def test_the_spread_is_the_error_of_a_stack_planned_from_the_others():
    slow, quick = (phase({"a": value, "b": value}, {}) for value in (20.0, 10.0))
    other = pacing.Profiled(Counter(c=5), {"c": 5.0}, {})  # shares no operator, so it says nothing
    assert pacing._spread([slow, quick, other]) == pytest.approx(0.6931, abs=1e-3)
    assert pacing._spread([slow, other]) == 0


def test_the_work_of_the_stack_takes_hardly_any_time():
    # products of the largest layer, at a rate that a single core exceeds
    flops = 2 * stacks.BATCH * stacks.TOKENS * stacks.WIDTH * 3 * stacks.WIDTH
    assert flops / 1e10 < 1e-6
