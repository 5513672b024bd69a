"""Batches that begin when they are full or at the deadline of their first request."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from fathom.lab.operations import serving as lab  # noqa: E402 - it needs torch


def test_a_lone_request_waits_until_the_deadline_and_a_full_batch_for_nobody() -> None:
    late = 5.0
    assert lab.batches([late]) == [(1, late + lab.DEADLINE_S)]
    simultaneous = [late] * (2 * lab.PLACES + 1)
    full = (lab.PLACES, late)
    assert lab.batches(simultaneous) == [full, full, (1, late + lab.DEADLINE_S)]
    assert lab.batches([]) == []


def test_a_request_after_the_deadline_begins_the_next_batch() -> None:
    wait = lab.DEADLINE_S
    begun = lab.batches([1.0, 1.0 + 0.9 * wait, 1.0 + 1.1 * wait])
    assert [size for size, _ in begun] == [2, 1]
    assert [at for _, at in begun] == pytest.approx([1.0 + wait, 1.0 + 2.1 * wait])


@pytest.mark.parametrize("rate", [20, 500, 5000])
def test_every_request_is_answered_within_the_deadline_by_an_event_simulation(rate: int) -> None:
    source, now, arrivals = random.Random(rate), 0.0, []
    for _ in range(400):
        now += source.expovariate(rate)
        arrivals.append(now)
    expected, waiting, left = [], [], list(arrivals)
    while left or waiting:  # one event at a time: an arrival, or the deadline of the first that waits
        if waiting and (not left or left[0] > waiting[0] + lab.DEADLINE_S):
            expected.append((len(waiting), waiting[0] + lab.DEADLINE_S))
            waiting = []
            continue
        waiting.append(left.pop(0))
        if len(waiting) == lab.PLACES:
            expected.append((len(waiting), waiting[-1]))
            waiting = []
    begun = lab.batches(arrivals)
    assert begun == expected and sum(size for size, _ in begun) == len(arrivals)
    starts = [at for size, at in begun for _ in range(size)]
    waits = [start - arrival for start, arrival in zip(starts, arrivals, strict=True)]
    assert min(waits) >= 0 and max(waits) <= lab.DEADLINE_S * (1 + 1e-9)


def test_rows_are_answered_in_the_order_of_their_requests() -> None:
    states, arrivals, layers = lab.arriving(1, "cpu")
    assert bool((arrivals.diff() > 0).all()) and len(lab.batches(arrivals.tolist())) < len(states) / 2
    exact = states.double()
    for layer in layers.double():
        exact = torch.tanh(exact @ layer)
    torch.testing.assert_close(
        lab.deadline_batching(states, arrivals, layers).double(), exact, rtol=1e-4, atol=1e-4
    )
