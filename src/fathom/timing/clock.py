"""Where time comes from, so that tests can bring their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Anything that tells nanoseconds and can wait."""

    def now_ns(self) -> int:
        """Nanoseconds since any fixed instant, never falling."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...


class SystemClock:
    """The process's monotonic clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
