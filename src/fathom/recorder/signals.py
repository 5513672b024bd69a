"""Signals during a recording, received one by one by the waiting loop instead of by handlers.

A handler does not learn who sent a signal. That matters: a Ctrl-C in the terminal already reaches the
program, and passing it on would interrupt the program's cleanup.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from types import FrameType
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
TRIGGER = signal.SIGUSR2
_TAKEN = {*FORWARDED, TRIGGER, signal.SIGCHLD}
_FROM_KERNEL = 0x80  # si_code of a signal sent by a terminal to its foreground group


class Inbox:
    """Context manager that blocks signals of this process, so that `wait` gets them; exit drops the rest."""

    def __enter__(self) -> Inbox:
        self._child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
        return self

    def wait(self, seconds: float) -> tuple[int, bool] | None:
        """Return the next signal and whether the terminal sent it; None after a timeout."""
        info = signal.sigtimedwait(_TAKEN, seconds)
        return info and (info.si_signo, info.si_code == _FROM_KERNEL)

    def __exit__(self, *_: object) -> None:
        while self.wait(0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        signal.signal(signal.SIGCHLD, self._child)


class PortableInbox:
    """An inbox with handlers, for systems without `sigtimedwait`. It guesses the sender of a signal."""

    def __enter__(self) -> PortableInbox:
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._arrived: deque[tuple[int, bool]] = deque()
        self._before: dict[int, Any] = {s: signal.signal(s, self._take) for s in _TAKEN}
        return self

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self._arrived.append((number, number in (signal.SIGINT, signal.SIGQUIT) and _in_foreground()))

    def wait(self, seconds: float) -> tuple[int, bool] | None:
        """Return the next signal and whether the terminal sent it; None after a timeout."""
        until = time.monotonic() + seconds
        while not self._arrived and time.monotonic() < until:
            time.sleep(min(0.02, seconds))
        return self._arrived.popleft() if self._arrived else None

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (OSError, AttributeError, ValueError):
        return False


def inbox() -> Inbox | PortableInbox:
    """Return an Inbox if the system supports it, else a PortableInbox."""
    return Inbox() if hasattr(signal, "sigtimedwait") else PortableInbox()
