"""One block of samples: how many a process gives, and where in a GPU's memory they are taken."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.referee.blocks import LEAST, LONG_NS, MOST, PRECISE, STAY, ProcessSampler, Sample, Seeds, precise
from fathom.referee.child import cuda, processor, values
from fathom.referee.gate import Turn
from fathom.referee.pair import Settings
from tests.support.clocks import FakeClock

PAGES = 4_000


class Process:
    """Answers as the process of a side does; `draw` makes the time of a call at a place."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw, self.log, self.waited_ns = draw, list[str](), 3e6
        self.level = draw()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, do: str, **more: Any) -> Any:
        if more.get("elsewhere"):
            do, self.level = "move", self.draw()
        self.log.append(do)
        ns = self.level * more.get("repeat", 1)
        self.waited_ns = max(ns, 3e6) if do == "go" else 3e6
        return {"go": {"ns": ns, "host_ns": ns, "queued": True}, "changed": []}.get(do)


def block(process: Process, device: str = "cuda", block_s: float = 10.0) -> Any:
    sides: Any = SimpleNamespace(turn=Turn(), start=lambda _: process, held_result=lambda *_: "saved")
    return ProcessSampler(sides, Settings(block_s=block_s), device, 2**30).block("baseline", Seeds(1), 0.5)


def test_samples_of_a_gpu_are_taken_at_several_places_a_few_at_each() -> None:
    process = Process(lambda: 1e6)
    result = block(process)
    assert len(result.samples["cold"]) == len(result.samples["warm"]) == LEAST
    assert process.log.count("move") == 2 * LEAST // STAY
    asked = [do for do in process.log[process.log.index("move") :] if do != "hold"]
    one_place = ["move", "go", *["place", "go"] * STAY]  # the first call there is no sample
    assert asked[:-1] == one_place * (2 * LEAST // STAY) and asked[-1] == "changed"


class Large(Process):
    """A processor's calls of 25 ms, whose results take 70 ms to copy. `told`: whether the side says so."""

    def __init__(self, said: bool) -> None:
        super().__init__(lambda: 25e6)
        self.told = said

    def ask(self, do: str, **more: Any) -> Any:
        answer = super().ask(do, **more)
        if do != "go":
            return answer
        self.waited_ns = 95e6
        return {"ns": 25e6, "preempted": 0} | ({"copied_ns": 70e6} if self.told else {})


def test_time_in_which_a_result_is_copied_is_no_patched_timer() -> None:
    assert block(Large(True), "cpu").reasons == []
    assert [reason.code for reason in block(Large(False), "cpu").reasons] == ["patched-timer"]


class Slow(list):
    """An array that raises when the referee inspects it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__([np.ones(3)])
        self.clock = clock

    def __iter__(self) -> Any:
        self.clock.sleep(1)
        return super().__iter__()


@pytest.mark.parametrize("slow", [False, True])
def test_a_processor_tells_how_long_the_copy_took_and_nothing_else(
    slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()

    def raw(_: Any) -> bytes:
        clock.sleep(0.07)
        return b""

    def target() -> Any:
        clock.sleep(0.005)
        return Slow(clock) if slow else [np.ones(3)]

    monkeypatch.setattr(processor, "now", clock.now_ns)
    monkeypatch.setattr(processor, "raw", raw)
    monkeypatch.setattr(values, "own_walk", lambda _: False)
    sample, _ = processor.Processor().run(target, [((), {})], repeat=5)
    assert (sample["ns"], sample["copied_ns"]) == (25_000_000, 70_000_000)


class Driver:
    """NVML that takes `ms` of the clock for each question, and finds the chip too hot from some time on."""

    NVML_CLOCK_SM = 0

    def __init__(self, clock: FakeClock, ms: int, hot_ns: int) -> None:
        self.clock, self.ms, self.hot_ns, self.asked = clock, ms, hot_ns, Counter[str]()

    def _answer(self, name: str, value: int) -> int:
        self.asked[name] += 1
        self.clock.ns += self.ms * 1_000_000
        return value

    def nvmlDeviceGetClockInfo(self, *_: Any) -> int:  # noqa: N802
        return self._answer("clock", 1700)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, *_: Any) -> int:  # noqa: N802
        return self._answer("reasons", 0x20 * (self.clock.ns >= self.hot_ns))


def watched(ms: int, hot_ns: int) -> tuple[Driver, Any]:
    """A block of samples of 1 ms each, by a driver that takes so long."""
    clock = FakeClock()
    driver, process = Driver(clock, ms, hot_ns), Process(lambda: 1e6)
    answer = process.ask

    def ask(do: str, **more: Any) -> Any:
        clock.ns += 1_000_000
        return answer(do, **more)

    process.ask = ask  # type: ignore[method-assign]
    sides: Any = SimpleNamespace(
        turn=Turn(clock=clock), start=lambda _: process, held_result=lambda *_: "saved"
    )
    sampler = ProcessSampler(sides, Settings(block_s=10.0), "cuda", 2**30)
    assert sampler._sensors is not None
    sampler._sensors.nvml, sampler._sensors.handle = driver, object()
    return driver, sampler.block("baseline", Seeds(1), 0.5)


def test_sensors_are_asked_seldom_and_for_what_is_needed() -> None:
    driver, result = watched(ms=3, hot_ns=10**12)
    assert result.clock_mhz == 1700 and not result.discarded
    assert driver.asked["clock"] == driver.asked["reasons"] <= 2 * LEAST / 3


def test_samples_beside_a_hot_look_are_discarded() -> None:
    """Samples go on for some 60 ms; from a third of it on the chip is hot."""
    _, result = watched(ms=0, hot_ns=40_000_000)
    assert 0 < result.discarded["throttled"] <= LEAST
    assert all(result.samples.values())


@pytest.mark.parametrize(("device", "ns"), [("cpu", 1e6), ("cuda", 2 * LONG_NS)])
def test_a_processor_and_long_calls_stay_where_they_are(device: str, ns: float) -> None:
    process = Process(lambda: ns)
    block(process, device)
    assert "move" not in process.log and "go" in process.log


def test_a_process_whose_times_depend_on_the_place_is_asked_for_more() -> None:
    draw = random.Random(0)
    process = Process(lambda: draw.gauss(1e6, 2e4))
    result = block(process)
    assert len(result.samples["cold"]) == MOST
    assert len(result.samples["warm"]) == LEAST  # it decides nothing
    assert process.log.count("move") == 2 * LEAST // STAY + MOST - LEAST  # one each, once it has stayed
    assert len(block(Process(lambda: draw.gauss(1e6, 2e4)), block_s=1e-9).samples["cold"]) == LEAST


@given(st.lists(st.lists(st.floats(1e3, 1.2e3), min_size=1, max_size=3), min_size=4, max_size=40))
def test_a_process_has_told_enough_when_the_mean_over_places_is_known(samples: list[list[float]]) -> None:
    places = [sum(place) / len(place) for place in samples]
    error = stdev(places) / len(places) ** 0.5
    if abs(error / mean(places) - PRECISE) > 1e-9:
        taken = [Sample(ns, stays=stays) for place in samples for stays, ns in enumerate(place)]
        assert precise(taken) == (error / mean(places) < PRECISE)


class Memory:
    """A device's memory, some of it others', given out by a driver that takes the first hole or the smallest
    that suffices; on top an allocator that keeps what is freed, and cuts the smallest block that suffices:
    what is small from blocks apart."""

    class OutOfMemoryError(RuntimeError): ...

    uint8 = None

    def __init__(self, best: bool, seed: int, pages: int = PAGES) -> None:
        draw = random.Random(seed)
        self.best, self.end = best, pages * cuda.PAGE
        self.segments: dict[bool, dict[int, int]] = {True: {}, False: {}}  # small ones? first byte: how many
        self.used = dict[int, int]()
        at = [cuda.PAGE * page for page in draw.sample(range(pages), 12)]
        self.others = {byte: min(cuda.PAGE * draw.randrange(1, 60), self.end - byte) for byte in at}
        self.cuda = SimpleNamespace(
            empty_cache=self.give_back, memory_reserved=self.reserved, mem_get_info=self.free_and_all
        )

    def taken(self) -> dict[int, int]:
        return self.others | self.segments[True] | self.segments[False]

    def reserved(self) -> int:
        return sum(sum(segments.values()) for segments in self.segments.values())

    def free_and_all(self) -> tuple[int, int]:
        return sum(size for size, _ in holes(self.taken(), 0, self.end)), self.end

    def give_back(self) -> None:
        for small, stored in self.segments.items():
            needed = {at: n for at, n in stored.items() if any(at <= byte < at + n for byte in self.used)}
            self.segments[small] = needed

    def empty(self, size: int, **_: Any) -> Tensor:
        small, size = size <= 2**20, -(-size // 512) * 512
        inside = [hole for at, n in self.segments[small].items() for hole in holes(self.used, at, at + n)]
        fitting = [hole for hole in inside if hole[0] >= size]
        byte = min(fitting)[1] if fitting else self.segment(size, small)
        self.used[byte] = size
        return Tensor(self, byte)

    def segment(self, size: int, small: bool) -> int:
        size = cuda.PAGE * -(-size // cuda.PAGE)
        fitting = [hole for hole in holes(self.taken(), 0, self.end) if hole[0] >= size]
        if not fitting:
            raise self.OutOfMemoryError
        byte = min(fitting, key=lambda hole: hole[not self.best])[1]
        self.segments[small][byte] = size
        return byte


def holes(taken: dict[int, int], begin: int, end: int) -> list[tuple[int, int]]:
    """How many bytes, and the first of them."""
    result = []
    for at, stored in [*sorted((at, n) for at, n in taken.items() if begin <= at < end), (end, 0)]:
        if at > begin:
            result.append((at - begin, begin))
        begin = max(begin, at + stored)
    return result


class Tensor:
    def __init__(self, memory: Memory, at: int) -> None:
        self.memory, self.at = memory, at

    def __del__(self) -> None:
        del self.memory.used[self.at]


def bench(memory: Memory) -> cuda.Cuda:
    result = cuda.Cuda.__new__(cuda.Cuda)
    result.lib, result.spacers, result.snapshot, result.block, result.reserved = memory, [], [], 0, 0
    memory.empty(2**22)  # left by an earlier call
    return result


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("size", [2**12, 2**19, 2**25, 3 * 2**26])
def test_whatever_the_driver_prefers_inputs_come_to_lie_elsewhere(
    monkeypatch: pytest.MonkeyPatch, best: bool, size: int
) -> None:
    places = set()
    for seed in range(3):
        monkeypatch.setattr(cuda, "unpredictable", random.Random(seed).random)
        memory = Memory(best, seed)
        side = bench(memory)
        for _ in range(20):
            side.move(size)
            x = memory.empty(size)
            places.add((seed, x.at))
            assert memory.empty(size).at != x.at
            del x
    assert len(places) >= 3 * 5


def test_a_device_that_is_full_is_moved_within_what_it_has() -> None:
    memory = Memory(best=False, seed=1, pages=400)
    side = bench(memory)
    for _ in range(20):
        side.move(2**23)
        memory.empty(2**23)


def test_what_finds_no_room_in_the_block_is_moved_too() -> None:
    memory = Memory(best=False, seed=2, pages=12_000)
    memory.others = {}
    side = bench(memory)
    places = set()
    for _ in range(12):
        side.move(2**26)
        places.add(memory.empty(2**31).at)
    assert len(places) >= 6


def test_once_it_holds_a_block_nothing_is_asked_of_the_driver() -> None:
    memory = Memory(best=False, seed=3)
    side = bench(memory)
    side.move(2**22)
    memory.segment = None  # type: ignore[assignment]
    for _ in range(50):
        side.move(2**22)
        stored = [memory.empty(size) for size in (2**22, 2**22, 2**18, 2**18)]
        del stored
