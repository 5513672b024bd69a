"""Timing on a device, on a stand-in for torch whose device has its own clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.referee.child import cuda, guards, values


class Device:
    """Work is queued and runs in order; spinning takes its cycles at 2 GHz, a call 1 ms, the host 3 ms."""

    def __init__(self) -> None:
        self.host_s = self.busy_until_s = 0.0
        self.log: list[str] = []

    def queue(self, seconds: float) -> float:
        self.busy_until_s = max(self.busy_until_s, self.host_s) + seconds
        return self.busy_until_s

    def wait(self) -> None:
        self.host_s = max(self.host_s, self.busy_until_s)


def stand_in(device: Device) -> Any:
    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = device.queue(0)

        def query(self) -> bool:
            return device.host_s >= self.at

        def synchronize(self) -> None:
            device.host_s = max(device.host_s, self.at)

        def elapsed_time(self, end: Event) -> float:
            return 1e3 * (end.at - self.at)

    def zero() -> None:
        device.log.append("flush")

    def sleep(cycles: int) -> None:
        device.log.append("spin")
        device.queue(cycles / 2e9)

    gpu = SimpleNamespace(
        Event=Event,
        synchronize=device.wait,
        _sleep=sleep,
        get_device_properties=lambda _: SimpleNamespace(L2_cache_size=50 * 2**20),
    )
    made: list[int] = []
    empty = lambda size, **_: made.append(size) or SimpleNamespace(zero_=zero)  # noqa: E731
    return SimpleNamespace(cuda=gpu, empty=empty, uint8=None, made=made)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    result = Device()
    lib = stand_in(result)
    monkeypatch.setattr(cuda, "torch", lambda: lib)
    monkeypatch.setattr(values, "torch", lambda: None)
    monkeypatch.setattr(cuda, "is_tensor", lambda _: False)
    result.lib = lib  # type: ignore[attr-defined]
    return result


def call(device: Device, host_s: float = 3e-3, waits: bool = False) -> Any:
    def target() -> None:
        device.host_s += host_s
        device.queue(1e-3)
        if waits:
            device.wait()

    return target


CALLS = [((), {})] * 2


def test_launch_latency_is_removed_by_a_spin_that_outlasts_it(device: Device) -> None:
    bench = cuda.Cuda()
    sample, results = bench.run(call(device), CALLS)
    assert sample["queued"] and sample["ns"] == pytest.approx(2e6) and len(results) == 2
    assert device.log == ["spin"] * 3  # 2, 4 and 8 ms
    assert bench.run(call(device), CALLS)[0]["queued"] and len(device.log) == 4  # it remembers


def test_latency_that_is_included_counts(device: Device) -> None:
    sample, _ = cuda.Cuda().run(call(device), CALLS, latency="included")
    assert sample["ns"] == pytest.approx(7e6) and device.log == []


def test_calls_that_wait_for_the_device_are_distinguished(device: Device) -> None:
    sample, _ = cuda.Cuda().run(call(device, waits=True), CALLS)
    assert not sample["queued"] and len(device.log) < 12


def test_cold_writes_twice_the_cache_after_the_inputs(device: Device) -> None:
    bench = cuda.Cuda()
    bench.run(call(device, 0), CALLS, cold=True, refresh=lambda: device.log.append("inputs"))
    assert device.log == ["inputs", "flush", "spin"] and device.lib.made == [100 * 2**20]  # type: ignore[attr-defined]


def test_repeats_keep_the_latest_results(device: Device) -> None:
    seen: list[int] = []
    target = lambda: seen.append(1) or len(seen)  # noqa: E731
    assert cuda.Cuda().run(target, CALLS, repeat=5)[1] == [9, 10]


class Pool:
    """An allocator that gives the smallest free block that suffices, splits it, and keeps what is freed."""

    def __init__(self, free: list[int]) -> None:
        self.free = [(size, False) for size in free]  # bytes, and whether they were written
        self.reserved = sum(free)

    def full(self, shape: tuple[int], value: float, device: str) -> Block:
        size = 4 * shape[0]
        fitting = sorted(block for block in self.free if block[0] >= size)
        if not fitting:
            self.reserved += size
            return Block(self, size)
        self.free.remove(fitting[0])
        if fitting[0][0] > size:
            self.free.append((fitting[0][0] - size, fitting[0][1]))
        return Block(self, size)


class Block:
    def __init__(self, pool: Pool, size: int) -> None:
        self.pool, self.size = pool, size

    def __del__(self) -> None:
        self.pool.free.append((self.size, True))


@given(st.lists(st.integers(1, 2**20).map(lambda n: 512 * n), max_size=8))
def test_all_free_memory_is_poisoned(free: list[int]) -> None:
    """A result that was never written lies in a block that an earlier call left, not in a new one."""
    pool, bench = Pool(free), cuda.Cuda.__new__(cuda.Cuda)
    gpu = SimpleNamespace(memory_reserved=lambda: pool.reserved)
    bench.lib, bench.synchronize = SimpleNamespace(full=pool.full, cuda=gpu), lambda: None
    bench.poison()
    assert pool.free and all(written for _, written in pool.free)
    assert sum(size for size, _ in pool.free) == pool.reserved


def test_a_precision_that_is_set_back_was_not_changed() -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has no such setting")
    before = guards.settings()
    torch.set_float32_matmul_precision("high")
    assert "torch.get_float32_matmul_precision" in guards.changed(before, guards.settings())
    torch.set_float32_matmul_precision("highest")  # leaves `ieee` where `none` was
    assert guards.changed(before, guards.settings()) == []
