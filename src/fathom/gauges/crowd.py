"""Who else used the processors while they were measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

MUCH = 0.1  # of all processors: more than this taken by others is a reason to doubt
_IDLE = ("idle", "iowait")


class Crowd:
    """A block of measuring; afterwards `flags` tell whether others took much of the processors.

    What a hypervisor took (steal) counts too.
    """

    def __init__(
        self,
        system: Callable[[], Any] = psutil.cpu_times,
        own: Callable[[], Any] = lambda: psutil.Process().cpu_times(),
    ) -> None:
        self._system, self._own = system, own
        self.others = 0.0  # share of all processors

    def __enter__(self) -> Crowd:
        self._before = self._look()
        return self

    def __exit__(self, *_: object) -> None:
        total, busy, own = (now - then for now, then in zip(self._look(), self._before, strict=True))
        self.others = max(busy - own, 0.0) / total if total > 0 else 0.0

    def _look(self) -> tuple[float, float, float]:
        """Seconds since the start, of all processors: passed, busy, and this process's with its children."""
        times = self._system()._asdict()
        # A guest's time is part of its user's already.
        passed = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
        idle = sum(times.get(name, 0.0) for name in _IDLE)
        return passed, passed - idle, sum(self._own()[:4])

    @property
    def flags(self) -> list[str]:
        """Reasons to doubt what was measured."""
        return [f"others used {self.others:.0%} of the processors meanwhile"] if self.others > MUCH else []
