"""A clock for what depends on time."""

from __future__ import annotations


class FakeClock:
    """A clock that advances only when it is set, or somebody sleeps by it."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += int(1e9 * seconds)
