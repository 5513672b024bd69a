"""One block of samples: how many a process gives, and where in a GPU's memory they are taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
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
    found = block(Process(lambda: draw.gauss(1e6, 2e4)))
    assert len(found.samples["cold"]) == MOST
    assert len(block(Process(lambda: draw.gauss(1e6, 2e4)), block_s=1e-9).samples["cold"]) == LEAST


@given(st.lists(st.floats(1e3, 1.2e3), min_size=8, max_size=40), st.floats(1e-3, 10))
def test_a_process_has_told_enough_when_the_mean_over_places_is_known(ns: list[float], scale: float) -> None:
    places = [np.mean(ns[first : first + STAY]) for first in range(0, len(ns), STAY)]
    error = np.sqrt(sum((place - np.mean(places)) ** 2 for place in places) / (len(places) - 1) / len(places))
    wanted = error / np.mean(places)
    if abs(wanted - SURE) > 1e-9:
        assert sure([{"ns": scale * one} for one in ns]) == (wanted < SURE)


class Memory:
    """A device's pages, some of them others', given out by a caching allocator on top of a driver that takes
    the first hole or the smallest that suffices."""

    class OutOfMemoryError(RuntimeError): ...

    uint8 = None

    def __init__(self, best: bool, seed: int, pages: int = PAGES) -> None:
        draw = random.Random(seed)
        self.best, self.taken, self.cached = best, dict[int, int](), dict[int, int]()
        self.pages, self.cuda = pages, SimpleNamespace(empty_cache=self.cached.clear)
        for _ in range(12):
            others = draw.randrange(pages)
            self.taken[others] = min(draw.randrange(1, 60), pages - others)

    def empty(self, size: int, **_: Any) -> Tensor:
        pages = -(-size // cuda.PAGE)
        kept = [page for page, held in self.cached.items() if held == pages]
        page = kept[0] if kept else self.hole(pages)
        self.cached.pop(page, None)
        self.taken[page] = pages
        return Tensor(self, page)

    def hole(self, pages: int) -> int:
        ends = sorted((page, page + held) for page, held in (self.taken | self.cached).items())
        holes, last = [], 0
        for begin, end in [*ends, (self.pages, self.pages)]:
            holes.append((begin - last, last))
            last = max(last, end)
        fitting = [hole for hole in holes if hole[0] >= pages]
        if not fitting:
            raise self.OutOfMemoryError
        return min(fitting)[1] if self.best else min(fitting, key=lambda hole: hole[1])[1]


class Tensor:
    def __init__(self, memory: Memory, page: int) -> None:
        self.memory, self.page = memory, page

    def __del__(self) -> None:
        self.memory.cached[self.page] = self.memory.taken.pop(self.page)


def bench(memory: Memory) -> cuda.Cuda:
    found = cuda.Cuda.__new__(cuda.Cuda)
    found.lib, found.spacers, found.snapshot = memory, [], []
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
        side.move(2**27)
    assert sum(memory.taken.values()) <= 400
