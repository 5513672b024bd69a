"""A clock that tests can replace."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock in nanoseconds that can also sleep."""

    def now_ns(self) -> int:
        """Return the nanoseconds since a fixed instant; never decreases."""
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
