"""Python's garbage collections: time them, and keep Fathom from causing them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fathom.probe.faults import guarded
from fathom.probe.reporter import Reporter

SHORTEST_COLLECTION_NS = 100_000


class Handle:
    """Something that can be undone."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self.remove = remove


def collections(session: Reporter) -> Handle:
    """Record collections of at least SHORTEST_COLLECTION_NS as waits, until the handle is removed."""
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


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection in the block, so that its allocations trigger none in the next step."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
