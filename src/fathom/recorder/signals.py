"""Signals while a program is recorded: taken one by one by the waiting loop instead of by handlers.

A handler is not told where a signal came from. That matters: Ctrl-C reaches the program from the terminal
already, and a second one would cut its own clean-up short.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from types import FrameType, TracebackType
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
TRIGGER = signal.SIGUSR2
_TAKEN = {*FORWARDED, TRIGGER, signal.SIGCHLD}
_FROM_KERNEL = 0x80  # si_code of what a terminal sends to its foreground group


class Inbox:
    """Signals of this process, waited for. As a context it blocks them, and drops what is left at the end."""

    def __enter__(self) -> Inbox:
        self._child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
        return self

    def wait(self, seconds: float) -> tuple[int, bool] | None:
        """The next signal and whether the terminal sent it; None when nothing came in time."""
        info = signal.sigtimedwait(_TAKEN, seconds)
        return info and (info.si_signo, info.si_code == _FROM_KERNEL)

    def __exit__(self, *_: object) -> None:
        while self.wait(0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        signal.signal(signal.SIGCHLD, self._child)


class PortableInbox:
    """The same by handlers, where there is no `sigtimedwait`: the sender is guessed from the terminal."""

    def __enter__(self) -> PortableInbox:
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._arrived: deque[tuple[int, bool]] = deque()
        self._before: dict[int, Any] = {s: signal.signal(s, self._take) for s in _TAKEN}
        return self

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self._arrived.append((number, number in (signal.SIGINT, signal.SIGQUIT) and _in_foreground()))

    def wait(self, seconds: float) -> tuple[int, bool] | None:
        """The next signal and whether the terminal sent it; None when nothing came in time."""
        until = time.monotonic() + seconds
        while not self._arrived and time.monotonic() < until:
            time.sleep(min(0.02, seconds))
        return self._arrived.popleft() if self._arrived else None

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (OSError, AttributeError, ValueError):
        return False


def inbox() -> Inbox | PortableInbox:
    """The exact one where the system offers it."""
    return Inbox() if hasattr(signal, "sigtimedwait") else PortableInbox()
