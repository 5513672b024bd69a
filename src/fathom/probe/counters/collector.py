"""What samples counters, as the rest of the probe sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

HARDWARE_BUFFER_BYTES = 256 << 20
TIME, CLOCK = "time", "clock"  # an interval is counted in nanoseconds, or in cycles of the system clock


class OverflowedError(Exception):
    """The hardware buffer was full before it was read."""


class Chunk(NamedTuple):
    """Samples that were read together. `populated` counts the incomplete ones too; the others are complete.

    `starts` and `ends` are as the driver delivers them, in nanoseconds or in ticks; `values` has one row a
    sample, one value a counter.
    """

    populated: int
    starts: Sequence[int]
    ends: Sequence[int]
    values: Sequence[Sequence[float]]


class Collector(Protocol):
    """One device's counters. `open`, then bursts of `configure`, `start`, `stop`, `chunks`, then `close`.

    Any call may raise whatever the driver's library raises; `fathom.probe.counters.explain` words it.
    """

    def open(self) -> None:
        """Take the device's performance monitors."""

    def configure(self, names: Sequence[str], interval: int, trigger: str = TIME) -> None:
        """Sample these counters, all in one pass, every `interval` ns (of CLOCK: cycles)."""

    def start(self) -> None:
        """Begin to sample."""

    def stop(self) -> None:
        """Sample no more; what was sampled waits in the hardware buffer."""

    def chunks(self) -> Iterator[Chunk]:
        """What was sampled, a few thousand samples at a time. Raises OverflowedError."""

    def close(self) -> None:
        """Give the performance monitors and the hardware buffer back."""
