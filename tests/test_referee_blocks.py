"""One block of samples: how many a process gives, and where in a GPU's memory they are taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.referee.blocks import LEAST, LONG_NS, MOST, STAY, SURE, ProcessSampler, Seeds, sure
from fathom.referee.child import cuda
from fathom.referee.settings import Settings
from fathom.referee.turn import Turn

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
    sides: Any = SimpleNamespace(turn=Turn(), start=lambda _: process, held=lambda _: "saved")
    return ProcessSampler(sides, Settings(block_s=block_s), device, 2**30).block("baseline", Seeds(1), 0.5)


def test_samples_of_a_gpu_are_taken_at_several_places_a_few_at_each() -> None:
    process = Process(lambda: 1e6)
    found = block(process)
    assert len(found.samples["cold"]) == len(found.samples["warm"]) == LEAST
    assert process.log.count("move") == 2 * LEAST // STAY
    asked = [do for do in process.log[process.log.index("move") :] if do != "hold"]
    one_place = ["move", "go", *["place", "go"] * STAY]  # the first call there is no sample
    assert asked[:-1] == one_place * (2 * LEAST // STAY) and asked[-1] == "changed"


@pytest.mark.parametrize(("device", "ns"), [("cpu", 1e6), ("cuda", 2 * LONG_NS)])
def test_a_processor_and_long_calls_stay_where_they_are(device: str, ns: float) -> None:
    process = Process(lambda: ns)
    block(process, device)
    assert "move" not in process.log and "go" in process.log


def test_a_process_whose_times_depend_on_the_place_is_asked_for_more() -> None:
    draw = random.Random(0)
    process = Process(lambda: draw.gauss(1e6, 2e4))
    found = block(process)
    assert len(found.samples["cold"]) == MOST
    assert process.log.count("move") == 2 * (LEAST // STAY + MOST - LEAST)  # one each, once it has stayed
    assert len(block(Process(lambda: draw.gauss(1e6, 2e4)), block_s=1e-9).samples["cold"]) == LEAST


@given(st.lists(st.lists(st.floats(1e3, 1.2e3), min_size=1, max_size=3), min_size=4, max_size=40))
def test_a_process_has_told_enough_when_the_mean_over_places_is_known(samples: list[list[float]]) -> None:
    places = [sum(place) / len(place) for place in samples]
    error = stdev(places) / len(places) ** 0.5
    if abs(error / mean(places) - SURE) > 1e-9:
        taken = [{"ns": ns, "stays": stays} for place in samples for stays, ns in enumerate(place)]
        assert sure(taken) == (error / mean(places) < SURE)


class Memory:
    """A device's pages, some of them others', given out by a driver that takes the first hole or the smallest
    that suffices; on top an allocator that keeps what is freed, and cuts the smallest block that suffices."""

    class OutOfMemoryError(RuntimeError): ...

    uint8 = None

    def __init__(self, best: bool, seed: int, pages: int = PAGES) -> None:
        draw = random.Random(seed)
        self.best, self.pages = best, pages
        self.segments, self.used = dict[int, int](), dict[int, int]()  # first page: how many
        self.others = {
            page: min(draw.randrange(1, 60), pages - page) for page in draw.sample(range(pages), 12)
        }
        self.cuda = SimpleNamespace(
            empty_cache=self.give_back, memory_reserved=self.reserved, mem_get_info=self.free_and_all
        )

    def reserved(self) -> int:
        return cuda.PAGE * sum(self.segments.values())

    def free_and_all(self) -> tuple[int, int]:
        return cuda.PAGE * sum(size for size, _ in holes(self.others | self.segments, 0, self.pages)), 0

    def give_back(self) -> None:
        held = self.segments.items()
        self.segments = {at: n for at, n in held if any(at <= page < at + n for page in self.used)}

    def empty(self, size: int, **_: Any) -> Tensor:
        pages = max(1, -(-size // cuda.PAGE))
        inside = [hole for at, n in self.segments.items() for hole in holes(self.used, at, at + n)]
        fitting = [hole for hole in inside if hole[0] >= pages]
        page = min(fitting)[1] if fitting else self.segment(pages)
        self.used[page] = pages
        return Tensor(self, page)

    def segment(self, pages: int) -> int:
        fitting = [hole for hole in holes(self.others | self.segments, 0, self.pages) if hole[0] >= pages]
        if not fitting:
            raise self.OutOfMemoryError
        page = min(fitting, key=lambda hole: hole[not self.best])[1]
        self.segments[page] = pages
        return page


def holes(taken: dict[int, int], begin: int, end: int) -> list[tuple[int, int]]:
    """How many pages, and the first of them."""
    found = []
    for page, held in [*sorted((at, n) for at, n in taken.items() if begin <= at < end), (end, 0)]:
        if page > begin:
            found.append((page - begin, begin))
        begin = max(begin, page + held)
    return found


class Tensor:
    def __init__(self, memory: Memory, page: int) -> None:
        self.memory, self.page = memory, page

    def __del__(self) -> None:
        del self.memory.used[self.page]


def bench(memory: Memory) -> cuda.Cuda:
    found = cuda.Cuda.__new__(cuda.Cuda)
    found.lib, found.spacers, found.snapshot, found.block, found.reserved = memory, [], [], 0, 0
    memory.empty(2**22)  # what an earlier call left
    return found


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("size", [2**16, 2**25, 3 * 2**26])
def test_whatever_the_driver_prefers_inputs_come_to_lie_elsewhere(best: bool, size: int) -> None:
    places = set()
    for seed in range(3):
        memory = Memory(best, seed)
        side = bench(memory)
        for _ in range(20):
            side.move(size)
            x = memory.empty(size)
            places.add((seed, x.page))
            assert memory.empty(size).page != x.page
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
        places.add(memory.empty(2**31).page)
    assert len(places) >= 6


def test_once_it_holds_a_block_nothing_is_asked_of_the_driver() -> None:
    memory = Memory(best=False, seed=3)
    side = bench(memory)
    side.move(2**22)
    memory.segment = None  # type: ignore[assignment]
    for _ in range(50):
        side.move(2**22)
        held = [memory.empty(2**22), memory.empty(2**22)]
        del held
