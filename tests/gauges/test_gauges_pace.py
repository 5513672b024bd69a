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


@cache
def paced(phase: str):
    """The pace of a phase, measured once."""
    name = f"host.pace.{phase}"
    return host_pace.GAUGES[name](GaugeJob(ids=(name,), pace=0.01))


@pytest.mark.parametrize("phase", PACES)
def test_the_host_has_a_pace_for_each_phase(phase):
    items = paced(phase)
    assert (items.id, items.unit) == (f"host.pace.{phase}", "s")
    assert 1e-8 < items.low <= items.value <= items.high < 1e-2
    assert 0 <= items.at["python"] <= 1


def test_gradients_are_as_before_when_a_gauge_ends():
    paced.cache_clear()
    with torch.no_grad():
        paced("foreach")
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
        seen = made.profiled()[pacing.FORWARD].operators
        assert seen.total() > called.names.total()


def test_operators_grow_with_the_layers_and_gradients_do_not_pile_up():
    small, large = stack(foreach=False), stack(2 * stacks.LAYERS, foreach=False)
    with torch.enable_grad():
        seen = [made.profiled() for made in (small, small, large)]
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


@pytest.mark.parametrize("phase", PACES[:3])
def test_the_operators_and_the_rest_of_a_phase_take_its_time(phase):
    ceiling = paced(phase)
    counts = Counter()
    for _, seen in pacing._stacks(torch, "cpu"):
        counts.update(seen[phase].operators)
    assert counts.total() == ceiling.at["operators"]
    assert set(counts) == {row["name"] for row in ceiling.series}
    in_operators = sum(counts[row["name"]] * row["value"] for row in ceiling.series)
    assert 0.2 < in_operators / (counts.total() * ceiling.value) <= 1.05


def test_recording_costs_each_operator_the_same():
    seen = pacing.Profiled(Counter(a=10, b=10), {"a": 30.0, "b": 12.0}, {"a": 0.0, "b": 8.0})
    each, rest = pacing.Paced(seen, Sample((30.0,), 1), parameters=0).shares()
    assert each == pytest.approx({"a": 20.0, "b": 10.0}) and rest == 0


def test_the_work_of_the_stack_takes_hardly_any_time():
    # products of the largest layer, at a rate that a single core exceeds
    flops = 2 * stacks.BATCH * stacks.TOKENS * stacks.WIDTH * 3 * stacks.WIDTH
    assert flops / 1e10 < 1e-6
