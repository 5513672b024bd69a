"""Contention for the processors during a measurement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

MUCH = 0.1  # of all processors: a higher share used by others is a reason for doubt
_IDLE = ("idle", "iowait")


class Contention:
    """Context manager around a measurement; `flags` then says whether others used much of the processors.

    Time stolen by a hypervisor counts too.
    """

    def __init__(
        self,
        system: Callable[[], Any] = psutil.cpu_times,
        own: Callable[[], Any] = lambda: psutil.Process().cpu_times(),
    ) -> None:
        self._system, self._own = system, own
        self.others = 0.0  # share of all processors

    def __enter__(self) -> Contention:
        self._before = self._look()
        return self

    def __exit__(self, *_: object) -> None:
        total, busy, own = (now - then for now, then in zip(self._look(), self._before, strict=True))
        self.others = max(busy - own, 0.0) / total if total > 0 else 0.0

    def _look(self) -> tuple[float, float, float]:
        """Return the seconds over all processors: elapsed, busy, and of this process with its children."""
        times = self._system()._asdict()
        # User time already includes guest time.
        passed = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))
        idle = sum(times.get(name, 0.0) for name in _IDLE)
        return passed, passed - idle, sum(self._own()[:4])

    @property
    def flags(self) -> list[str]:
        """Return the reasons to doubt the measurement."""
        return [f"others used {self.others:.0%} of the processors meanwhile"] if self.others > MUCH else []
