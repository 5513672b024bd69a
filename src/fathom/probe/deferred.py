"""Marks that cost almost nothing. Processing a mark takes tens of microseconds once the program has filled
the caches; while no decision is due, only its time is stored, for later."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fathom.probe.chooser import Signal

MOST_MARKS = 32
LONGEST_NS = 20_000_000


class DeferredMarks:
    """Starts after a processed mark; accepts similar marks, up to a number and a duration."""

    def __init__(self) -> None:
        self._of: tuple[str, int, int] | None = None
        self._until = 0
        self._times: list[int] = []

    def begin(self, signal: Signal) -> None:
        """From now on, accept marks like `signal`."""
        self._of = (signal.source, signal.key, threading.get_ident())
        self._until = signal.ns + LONGEST_NS

    def takes(self, source: str, key: int) -> bool:
        """Whether this mark was deferred; if not, it must be processed, after the deferred ones."""
        if self._of != (source, key, threading.get_ident()):
            return False
        now = time.time_ns()
        if now >= self._until or len(self._times) >= MOST_MARKS:
            return False
        self._times.append(now)
        return True

    def end(self) -> list[int]:
        """Stop deferring and return the stored times."""
        self._of = None
        times, self._times = self._times, []
        return times
