"""Counters that are none: a collector that emits samples by rule, and chips with units that are missing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fathom.probe.counters import Chunk, OverflowedError

BOOT_NS = time.time_ns() - 10**12  # ticks count from here


def value(burst: int, sample: int, counter: int) -> float:
    """The values of the fake; exact in float32."""
    return float(burst * 4096 + sample * 16 + counter)


@dataclass
class FakeCollector:
    """Emits `samples` a burst, `chunk` at a time, in ns since the epoch.

    With `rate` it emits as many as fill the burst, in ticks, so many a nanosecond.
    """

    samples: int = 100
    chunk: int = 40
    rate: float | None = None
    incomplete: int = 0  # of each chunk
    fails: dict[str, Exception] = field(default_factory=dict)
    overflows: int = 0  # the first so many bursts
    calls: list[Any] = field(default_factory=list)
    bursts: int = 0

    def _called(self, name: str, *about: Any) -> None:
        self.calls.append((name, *about))
        if name in self.fails:
            raise self.fails[name]

    def open(self) -> None:
        self._called("open")

    def configure(self, names: Sequence[str], interval: int, trigger: str = "time") -> None:
        self._called("configure", tuple(names), interval, trigger)
        self._names, self._interval = list(names), interval

    def start(self) -> None:
        self._begun = time.time_ns()
        self._called("start")

    def stop(self) -> None:
        if self.rate is not None:  # as many as there was time for
            self.samples = (time.time_ns() - self._begun) // self._interval - 1
        self._called("stop")

    def chunks(self) -> Iterator[Chunk]:
        self._called("chunks")
        burst, self.bursts = self.bursts, self.bursts + 1
        if burst < self.overflows:
            raise OverflowedError
        for first in range(0, self.samples, self.chunk):
            numbers = range(first, min(first + self.chunk, self.samples))
            times = [self._begun + self._interval * (number + 1) for number in numbers]
            starts = [self._stamp(ns) for ns in times]
            ends = [self._stamp(ns + self._interval) for ns in times]
            rows = [[value(burst, number, at) for at in range(len(self._names))] for number in numbers]
            yield Chunk(len(numbers) + self.incomplete, starts, ends, rows)

    def _stamp(self, ns: int) -> int:
        return ns if self.rate is None else round((ns - BOOT_NS) * self.rate)

    def close(self) -> None:
        self._called("close")


@dataclass
class FakeChip:
    """Counters named UNIT.number: units may be missing, and count only so many at once."""

    capacity: dict[str, int]
    missing: set[str] = field(default_factory=set)
    passes_alone: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    sampled: int = 0

    def passes(self, names: Sequence[str]) -> int:
        if any(name in self.unknown for name in names):
            return 0 if len(names) == 1 else 2
        units = [name.partition(".")[0] for name in names]
        needed = max(-(-units.count(unit) // self.capacity[unit]) for unit in set(units))
        return max(needed, *(self.passes_alone.get(name, 1) for name in names))

    def completes(self, names: Sequence[str]) -> bool:
        assert self.passes(names) == 1
        self.sampled += 1
        return not any(name.partition(".")[0] in self.missing for name in names)
