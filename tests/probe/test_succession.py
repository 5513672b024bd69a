"""Which optimizers are one source of steps: those that follow each other, and not those that take turns."""

from __future__ import annotations

import gc

import pytest
import torch

from fathom.probe.hooks.succession import Succession
from tests.support.probe_programs import launch


@pytest.fixture
def keys():
    """Makes steps of optimizers, and returns their keys."""
    succession = Succession()
    return lambda *optimizers: [succession.key_of(optimizer) for optimizer in optimizers]


def model():
    return torch.nn.Linear(2, 1)


def sgd(of):
    return torch.optim.SGD(of.parameters(), lr=0.1)


def test_a_new_optimizer_of_the_same_parameters_succeeds_a_dead_one(keys):
    net = model()
    assert len({keys(sgd(net))[0] for _ in range(5)}) == 1


def test_it_succeeds_a_living_one(keys):
    net = model()
    first, second = sgd(net), sgd(net)
    assert len(set(keys(first, first, second, second, second))) == 1


def test_optimizers_of_the_same_parameters_that_take_turns_are_two(keys):
    net = model()
    first, second = sgd(net), sgd(net)
    seen = keys(*[first, second] * 4)
    assert len(set(seen[2:])) == 2 and seen[2::2] == seen[:1] * 3


def test_optimizers_of_two_models_are_two(keys):
    first, second = model(), model()
    mine, other = sgd(first), sgd(second)
    assert len(set(keys(mine, mine, other, other, other, mine))) == 2
    del mine
    gc.collect()
    assert len(set(keys(other, sgd(first)))) == 2


def test_the_next_fold_succeeds_the_last_one(keys):
    nets = [model() for _ in range(4)]
    assert len({keys(sgd(net))[0] for net in nets}) == 1


def test_an_optimizer_inside_another_is_its_own(keys):
    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            self.inner_key = keys(self.inner)[0]

    net = model()
    outer = Outer(net.parameters(), lr=0.1)
    outer.inner = sgd(net)
    for _ in range(3):
        outer.step()
        assert keys(outer)[0] != outer.inner_key


def test_an_optimizer_without_weak_references_is_refused(keys):
    class Slotted:
        __slots__ = ()

    with pytest.raises(TypeError):
        keys(Slotted())


@pytest.mark.programs
@pytest.mark.parametrize("every", ["1", "20"])
def test_steps_go_on_when_the_optimizer_is_made_anew(tmp_path, every):
    run = launch(tmp_path, "reopened.py", "80", every)
    assert {mark["source"] for mark in run.marks} == {"optimizer"}
    assert len(run.marks) >= (78 if every == "20" else 70)
