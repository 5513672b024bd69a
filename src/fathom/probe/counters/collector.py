"""The interface of counter collectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

HARDWARE_BUFFER_BYTES = 256 << 20
TIME, CLOCK = "time", "clock"  # unit of an interval: nanoseconds, or cycles of the system clock


class OverflowedError(Exception):
    """The hardware buffer overflowed before it was read."""


class Chunk(NamedTuple):
    """Complete samples that were read together. `populated` also counts incomplete samples.

    `starts` and `ends` are as delivered by the driver, in nanoseconds or ticks; `values` has one row per
    sample and one value per counter.
    """

    populated: int
    starts: Sequence[int]
    ends: Sequence[int]
    values: Sequence[Sequence[float]]


class Collector(Protocol):
    """One device's counters. Call `open`; per burst `configure`, `start`, `stop`, `chunks`; finally `close`.

    Any call may raise the driver library's exceptions; `fathom.probe.counters.explain` explains them.
    """

    def open(self) -> None:
        """Reserve the device's performance monitors."""

    def configure(self, names: Sequence[str], interval: int, trigger: str = TIME) -> None:
        """Choose the counters to sample in one pass, every `interval` ns (cycles if `trigger` is CLOCK)."""

    def start(self) -> None:
        """Start sampling."""

    def stop(self) -> None:
        """Stop sampling; samples stay in the hardware buffer."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the samples, a few thousand at a time. Raises OverflowedError."""

    def close(self) -> None:
        """Release the performance monitors and the hardware buffer."""
