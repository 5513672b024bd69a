"""The operating system's id of the running thread, as the profiler writes it."""

from __future__ import annotations

import threading

_known: dict[int, int] = {}


def native_id() -> int:
    """Like threading.get_native_id, but cached, because that makes a system call every time."""
    ident = threading.get_ident()
    native = _known.get(ident)
    if native is None:
        native = _known[ident] = threading.get_native_id()
    return native


def forget() -> None:
    """Clear the cache after a fork, which changes the ids."""
    _known.clear()
