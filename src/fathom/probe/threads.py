"""Threads of the probe, which the program's `threading` does not list, and ids of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fathom.pristine import _thread

if TYPE_CHECKING:
    from threading import local as Local  # noqa: N812
else:
    Local = _thread._local

get_ident, start_new_thread = _thread.get_ident, _thread.start_new_thread
Lock, RLock = _thread.allocate_lock, _thread.RLock
_known: dict[int, int] = {}


def native_id() -> int:
    """Return the operating system's id of this thread, cached because reading it makes a system call."""
    ident = get_ident()
    native = _known.get(ident)
    if native is None:
        native = _known[ident] = _thread.get_native_id()
    return native


def known(ident: int) -> int:
    """Return the operating system's id of another thread if it has called the probe, else of this one."""
    return _known.get(ident) or native_id()


def forget() -> None:
    """Clear the cache after a fork, which changes the ids."""
    _known.clear()


def main_thread() -> Any:
    """Return the main thread, without a call that the program may have replaced."""
    return threading._main_thread  # type: ignore[attr-defined]


def is_main() -> bool:
    """Return whether this is the main thread."""
    return bool(get_ident() == main_thread().ident)


class Flag:
    """A flag that one thread sets and others wait for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()
        self.is_set = False

    def set(self) -> None:
        """Set the flag, which wakes the waiting thread."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set or the time is over; return whether it is set."""
        if self._lock.acquire(timeout=seconds):
            self._lock.release()
        return self.is_set


class Alarm:
    """Calls `action` in a separate thread after some seconds, unless cancelled before."""

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self._cancelled = Flag()
        start_new_thread(self._run, (seconds, action))

    def _run(self, seconds: float, action: Callable[[], None]) -> None:
        if not self._cancelled.wait(seconds):
            action()

    def cancel(self) -> None:
        """Do not call the action."""
        self._cancelled.set()
