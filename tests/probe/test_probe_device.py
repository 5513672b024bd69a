"""The device of a process, from torch's allocator."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fathom.probe.device import device_in_use


def cuda(values: list[int], current: int = 0, started: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        is_initialized=lambda: started,
        current_device=lambda: current,
        device_count=lambda: len(values),
        memory_allocated=lambda device: values[device],
    )


@pytest.mark.parametrize(
    ("allocated", "current", "expected"),
    [([0, 0], 1, 1), ([5, 9], 0, 1), ([5, 5], 1, 1), ([7, 0, 0], 2, 0), ([0], 0, 0)],
)
def test_the_device_with_most_memory_is_in_use_or_else_the_current_one(allocated, current, expected):
    assert device_in_use(cuda(allocated, current)) == expected


def test_nothing_is_asked_of_a_driver_that_was_not_started():
    def never(*_: object) -> int:
        raise AssertionError("asked")

    asked = cuda([1], started=False)
    asked.current_device = asked.memory_allocated = asked.device_count = never
    assert device_in_use(asked) == 0
