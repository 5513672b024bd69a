"""Marks that cost next to nothing. Looking at a mark takes tens of microseconds in a program whose code has
meanwhile filled the caches; where nothing is to be decided, its time is only kept, and looked at later."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fathom.probe.chooser import Signal

MOST_MARKS = 32
LONGEST_NS = 20_000_000


class Lull:
    """Begins behind a mark that was looked at; takes the marks like it, a few or for a short while."""

    def __init__(self) -> None:
        self._of: tuple[str, int, int] | None = None
        self._until = 0
        self._times: list[int] = []

    def begin(self, signal: Signal) -> None:
        """Marks like `signal` may be taken from here on."""
        self._of = (signal.source, signal.key, threading.get_ident())
        self._until = signal.ns + LONGEST_NS

    def takes(self, source: str, key: int) -> bool:
        """Whether this mark is kept for later; False ends the lull, and the mark has to be looked at."""
        if self._of != (source, key, threading.get_ident()):
            return False
        now = time.time_ns()
        if now >= self._until or len(self._times) >= MOST_MARKS:
            return False
        self._times.append(now)
        return True

    def end(self) -> list[int]:
        """The times that were kept; the lull is over."""
        self._of = None
        times, self._times = self._times, []
        return times
