"""Measure copies between host and device, with pinned and with pageable memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fathom.gauges.gpu import effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, best
from fathom.machine import Ceiling
from fathom.units import GIB, MIB

SIZES = (16 * MIB, 64 * MIB, 256 * MIB)
FULL_SIZES = (MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
BUDGET_S = {"pinned": 1.0, "pageable": 1.5}
LONGER_S = 2.0  # for the fastest pageable copy, whose times vary with the load of the host
Ways = dict[str, Callable[[], object]]
CHUNK = 16 << 20  # bytes: one buffer is filled while the link drains the other


def _pinned(way: str, job: GaugeJob) -> Ceiling:
    sizes = FULL_SIZES if job.full else SIZES
    pace = effort(job, BUDGET_S["pinned"] / len(sizes))
    results = []
    for size in sizes:
        to, source = _buffers(way, size, pinned=True)
        work = partial(to.copy_, source, non_blocking=True)
        results.append(gpu().measure({"bytes": size}, work, size, pace))
    return best(f"copy.{way}.pinned", results)


def _pageable(way: str, job: GaugeJob) -> Ceiling:
    """Measure every method at every size, then the fastest again for longer."""
    sizes = FULL_SIZES if job.full else SIZES
    works = {(size, name): work for size in sizes for name, work in _ways(way, size).items()}
    looked = {
        which: _result(*which, work, BUDGET_S["pageable"] / len(works), job) for which, work in works.items()
    }
    fastest = max(looked, key=lambda which: looked[which].rate)
    longer = _result(*fastest, works[fastest], LONGER_S, job)
    return best(f"copy.{way}.pageable", list((looked | {fastest: longer}).values()), longer)


def _result(size: int, name: str, work: Callable[[], object], seconds: float, job: GaugeJob) -> Measurement:
    """Measure one pageable copy; it blocks the caller, so its work needs no lead on the device."""
    result = gpu().measure({"bytes": size, "way": name}, work, size, effort(job, seconds, lead_s=0.0))
    return replace(result, by_host=True)


def _ways(way: str, size: int) -> Ways:
    """Return the ways to copy pageable memory: by the driver, or staged by all or half of torch's threads."""
    torch = gpu().torch
    to, source = _buffers(way, size, pinned=False)
    buffered = DoubleBuffer(torch, to, source)
    through = buffered.to_device if way == "h2d" else buffered.to_host
    every = torch.get_num_threads()
    ways: Ways = {"driver": lambda: to.copy_(source)}
    return ways | {f"staged by {n}": partial(_by, torch, n, through) for n in {every, max(every // 2, 1)}}


def _buffers(way: str, size: int, pinned: bool) -> tuple[Any, Any]:
    """Return the destination and the source, each of `size` bytes."""
    torch = gpu().torch
    device = torch.randint(0, 255, (size,), dtype=torch.uint8, device="cuda")
    host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    host.copy_(device)  # random bytes, with every page touched
    return (device, host) if way == "h2d" else (host, device)


def _by(torch: Any, threads: int, work: Callable[[], None]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    work()
    torch.set_num_threads(before)


GAUGES = {
    f"copy.{way}.{kind}": partial(measure, way)
    for way in ("h2d", "d2h")
    for kind, measure in (("pinned", _pinned), ("pageable", _pageable))
}


class DoubleBuffer:
    """Copy `source` to `to` through two pinned buffers, if one of the two is in pageable memory.

    Each method copies all bytes in its direction and returns when the copy is complete.
    """

    def __init__(self, torch: Any, to: Any, source: Any) -> None:
        self._buffers = [torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._moved = [torch.cuda.Event() for _ in range(2)]
        self._parts = list(zip(to.split(CHUNK), source.split(CHUNK), strict=True))

    def to_device(self) -> None:
        for number, (there, here) in enumerate(self._parts):
            buffer, moved = self._turn(number, here)
            moved.synchronize()
            buffer.copy_(here)
            there.copy_(buffer, non_blocking=True)
            moved.record()
        self._moved[(len(self._parts) - 1) % 2].synchronize()

    def to_host(self) -> None:
        for number, (_, there) in enumerate(self._parts):
            self._fetch(number, there)
            if number:
                self._store(number - 1)
        self._store(len(self._parts) - 1)

    def _fetch(self, number: int, there: Any) -> None:
        buffer, moved = self._turn(number, there)
        buffer.copy_(there, non_blocking=True)
        moved.record()

    def _store(self, number: int) -> None:
        here, _ = self._parts[number]
        buffer, moved = self._turn(number, here)
        moved.synchronize()
        here.copy_(buffer)

    def _turn(self, number: int, part: Any) -> tuple[Any, Any]:
        return self._buffers[number % 2][: len(part)], self._moved[number % 2]
