"""Python's garbage collections: time them, and keep Fathom from causing them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fathom.pristine import gc, time
from fathom.probe.faults import guarded
from fathom.probe.reporter import Reporter
from fathom.probe.threads import get_ident, known

SHORTEST_COLLECTION_NS = 100_000
MOST_COLLECTIONS = 4096  # between two flushes


class Handle:
    """Something that can be undone."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self.remove = remove


class _Clock:
    """Its attributes `start` and `stop` append (time, thread) to a deque of that name whenever they are read.

    Only C code runs then. A Python function would also run the program's signal handlers, and the garbage
    collector would swallow what they raise: a Ctrl-C during a long collection would be lost.
    """

    def __init__(self) -> None:
        self.starts: deque[tuple[int, int]] = deque(maxlen=MOST_COLLECTIONS)
        self.stops: deque[tuple[int, int]] = deque(maxlen=MOST_COLLECTIONS)
        now = {name: zip(iter(time.time_ns, None), iter(get_ident, None)) for name in ("start", "stop")}  # noqa: B905
        start, stop = map(self.starts.append, now["start"]), map(self.stops.append, now["stop"])
        reading = {"start": property(partial(next, start)), "stop": property(partial(next, stop))}
        self.callback: Any = partial(getattr, type("Reading", (), reading)())
        for name in reading:  # a built-in that the program replaced fails here, in the fence
            self.callback(name, {})
        self.starts.clear()
        self.stops.clear()

    def pairs(self) -> Iterator[tuple[int, int, int]]:
        """Yield start and end in ns, and the thread, of each collection that has ended."""
        while self.stops:
            end, thread = self.stops.popleft()
            yield self.starts.popleft()[0], end, thread


def collections(session: Reporter) -> Handle:
    """Record collections of at least SHORTEST_COLLECTION_NS as waits, until the handle is removed."""
    clock = _Clock()

    @guarded("timing garbage collection")
    def report() -> None:
        for start, end, thread in clock.pairs():
            if end - start >= SHORTEST_COLLECTION_NS:
                session.wait("gc", start, end, thread=known(thread))

    def remove() -> None:
        gc.callbacks.remove(clock.callback)
        report()
        session.on_flush.remove(report)

    session.on_flush.append(report)
    gc.callbacks.append(clock.callback)
    return Handle(remove)


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
