"""Find out whether a core is idle, on which sampling takes no time from the program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

LEAST_S = 0.1  # the system counts in hundredths of a second
_IDLE = ("idle", "iowait")


def _times() -> list[Any]:
    try:
        import psutil
    except ImportError:  # the target may lack it; then no core counts as idle
        return []
    return psutil.cpu_times(percpu=True)


class IdleCores:
    """Counts the cores that nobody used since the last `begin`, among those that this process may use."""

    def __init__(self, times: Callable[[], list[Any]] = _times, cores: Iterable[int] | None = None) -> None:
        self._times = times
        self._cores = set(os.sched_getaffinity(0) if cores is None else cores)
        self.begin()

    def begin(self) -> None:
        """Begin to count anew."""
        self._before = self._now()

    def count(self) -> float | None:
        """Return the mean number of idle cores; None if it is unknown, or if LEAST_S did not pass."""
        both = list(zip(self._before, self._now(), strict=False))
        if not both or min(now[1] - then[1] for then, now in both) < LEAST_S:
            return None
        return sum((now[0] - then[0]) / (now[1] - then[1]) for then, now in both)

    def _now(self) -> list[tuple[float, float]]:
        """Return the idle and the elapsed seconds of each core."""
        rows = [row._asdict() for core, row in enumerate(self._times()) if core in self._cores]
        guests = ("guest", "guest_nice")  # part of user time
        return [
            (sum(row.get(name, 0.0) for name in _IDLE), sum(v for k, v in row.items() if k not in guests))
            for row in rows
        ]
