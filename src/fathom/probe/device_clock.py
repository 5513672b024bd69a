"""Device events at the marks of the clean phase: the same step boundaries, measured on the device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypedDict

LEAST_DISTANCE_NS = 2_000_000  # between events: with steps below 2 ms, not every mark gets one
REBASE_MS = 1_000.0  # elapsed times are float32 and lose resolution beyond a second


def lengths(marks: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """Return (last step, ns per step) for each pair of consecutive marks of a `device` record."""
    return [(k, (end - begin) / (k - first)) for (first, begin), (k, end) in pairwise(marks) if k > first]


class DeviceMarks(TypedDict):
    """A `device` record: steps with their ns since the burst's first event."""

    t: str
    burst: int
    marks: list[tuple[int, int]]


class DeviceClock:
    """Pooled CUDA events. Completed events are read in batches, without waiting."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._pool: list[Any] = []
        self._open: list[tuple[int, Any]] = []
        self._burst = self._device = 0
        self._base: Any = None
        self._base_ns = 0
        self._last_ns = 0

    def begin(self, burst: int, device: int) -> None:
        """Begin a burst of clean steps on `device`: times count from its first event."""
        self._burst, self._device = burst, device
        self._open.clear()
        self._base, self._base_ns, self._last_ns = None, 0, 0

    def record(self, k: int, now_ns: int, closing: bool = False) -> None:
        """Record the boundary of step k on the device's current stream, unless one was just recorded.

        A `closing` boundary is always recorded: if short steps are launched far ahead of the device, only the
        first and the closing boundary give their length.
        """
        if (now_ns - self._last_ns < LEAST_DISTANCE_NS and not closing) or not self._cuda.is_initialized():
            return
        if self._cuda.is_current_stream_capturing():
            return
        event = self._pool.pop() if self._pool else self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        self._open.append((k, event))
        self._last_ns = now_ns

    def read(self) -> list[DeviceMarks]:
        """Return a `device` record of the completed events, if there are any."""
        marks: list[tuple[int, int]] = []
        while self._open and self._open[0][1].query():
            k, event = self._open.pop(0)
            marks.append((k, self._elapsed(event)))
        return [{"t": "device", "burst": self._burst, "marks": marks}] if marks else []

    def _elapsed(self, event: Any) -> int:
        if self._base is None:
            self._base = event
            return 0
        since = self._base.elapsed_time(event)
        elapsed = self._base_ns + round(since * 1e6)
        if since > REBASE_MS:
            self._pool.append(self._base)
            self._base, self._base_ns = event, elapsed
        else:
            self._pool.append(event)
        return elapsed

    def wait(self) -> None:
        """Wait for the last event, at the end of a phase so that no measured step is slowed."""
        if self._open and not self._cuda.is_current_stream_capturing():
            self._open[-1][1].synchronize()
