"""The host's pace: seconds of the host for each operator, in the phases of a step of small layers."""

from __future__ import annotations

from collections import Counter
from time import perf_counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fathom.gauges import host_pace, pacing
from fathom.gauges.catalogue import PACES
from fathom.gauges.job import GaugeJob

pytestmark = pytest.mark.programs


def paced(phase: str):
    name = f"host.pace.{phase}"
    return host_pace.GAUGES[name](GaugeJob(ids=(name,), pace=0.01))


@pytest.mark.parametrize("phase", PACES)
def test_the_host_has_a_pace_for_each_phase(phase):
    items = paced(phase)
    assert (items.id, items.unit) == (f"host.pace.{phase}", "s")
    assert 1e-8 < items.low <= items.value <= items.high < 1e-2
    assert 0 <= items.at["python"] <= 1


def test_gradients_are_as_before_when_a_gauge_ends():
    with torch.no_grad():
        paced("backward")
        assert not torch.is_grad_enabled()


class Called(TorchDispatchMode):
    """Counts the operators that reach the backend, by their schemas."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names[function._schema.name] += 1
        return function(*args, **(kwargs or {}))


def stack(layers: int = pacing.LAYERS, **optimizer: bool):
    with torch.enable_grad():
        made = pacing.PacedStack(torch, "cpu", layers, **optimizer)
        made.timed(pacing.FORWARD, perf_counter)(3)
        return made


def test_the_operators_are_all_that_reach_the_backend_and_those_that_call_them():
    made = stack(foreach=False)
    with torch.enable_grad():
        with Called() as called:
            made.forward()
        made.backward()
        made.optimize()
        assert made.profiled(pacing.FORWARD).operators > sum(called.names.values())


def test_operators_grow_with_the_layers_and_gradients_do_not_pile_up():
    small, large = stack(foreach=False), stack(2 * pacing.LAYERS, foreach=False)
    with torch.enable_grad():
        for phase in (pacing.FORWARD, pacing.BACKWARD, pacing.OPTIMIZER):
            counts = [made.profiled(phase).operators for made in (small, small, large)]
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
    assert paced(at_once).at["parameters"] == len(made.parameters)


def test_the_work_of_the_stack_takes_hardly_any_time():
    # products of the largest layer, at a rate that a single core exceeds
    flops = 2 * pacing.BATCH * pacing.TOKENS * pacing.WIDTH * 3 * pacing.WIDTH
    assert flops / 1e10 < 1e-6
