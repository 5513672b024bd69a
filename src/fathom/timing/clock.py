"""A clock that tests can replace."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of nanoseconds that can wait."""

    def now_ns(self) -> int:
        """Nanoseconds since a fixed instant, never decreasing."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The process's monotonic clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
