"""Time Python's garbage collections: the host waits for them wherever they happen."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Protocol

from fathom.probe.faults import guarded

SHORTEST_COLLECTION_NS = 100_000


class Waits(Protocol):
    """The recording that receives waits."""

    def wait(self, cause: str, start: int, end: int, detail: str = "") -> None:
        """Record a wait of this thread with a known cause."""


class Handle:
    """Something that can be undone."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self.remove = remove


def collections(session: Waits) -> Handle:
    """Record every collection of at least SHORTEST_COLLECTION_NS until the handle is removed."""
    began = {"ns": 0}

    @guarded("timing garbage collection")
    def collecting(phase: str, info: dict[str, int]) -> None:
        now = time.time_ns()
        if phase == "start":
            began["ns"] = now
        elif began["ns"] and now - began["ns"] >= SHORTEST_COLLECTION_NS:
            session.wait("gc", began["ns"], now, f"generation {info['generation']}")

    gc.callbacks.append(collecting)
    return Handle(lambda: gc.callbacks.remove(collecting))
