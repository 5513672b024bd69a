"""The operating system's id of the running thread, as the profiler writes it."""

from __future__ import annotations

import threading

_known: dict[int, int] = {}


def native_id() -> int:
    """Return threading.get_native_id(), cached because each call of it makes a system call."""
    ident = threading.get_ident()
    native = _known.get(ident)
    if native is None:
        native = _known[ident] = threading.get_native_id()
    return native


def forget() -> None:
    """Clear the cache after a fork, which changes the ids."""
    _known.clear()
