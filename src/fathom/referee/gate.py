"""Who may use the machine: proofs side by side share it, but whoever takes samples has it alone."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from fathom.timing import Clock, SystemClock


class StoppedError(Exception):
    """The gate was closed: nobody is let in any more."""


class Order:
    """Who is let in, as a function of who came when: a readers-writer lock without threads or clocks.

    Nobody is inside beside one who is `alone`; those go first and in the order they came. While one of them
    waits others are still let in for `grace_ns`, so that several gather and those inside leave but once; then
    nobody is, but should they take longer than `drain_ns` to leave, the others are let in again, and so on.
    """

    def __init__(self, grace_ns: int = 0, drain_ns: int = 10**10) -> None:
        self._grace_ns, self._cycle_ns = grace_ns, grace_ns + drain_ns
        self.inside: set[int] = set()
        self.alone: int | None = None
        self._sharing: list[int] = []
        self._lonely: deque[int] = deque()
        self._since_ns = 0  # one who wants to be alone waits

    def come(self, who: int, alone: bool, now_ns: int) -> None:
        """`who` waits from now on."""
        if not alone:
            self._sharing.append(who)
            return
        if not self._lonely:
            self._since_ns = now_ns
        self._lonely.append(who)

    def go(self, who: int) -> None:
        """`who` leaves, or waits no longer."""
        self.inside.discard(who)
        self.alone = None if self.alone == who else self.alone
        for waiting in (self._sharing, self._lonely):
            with suppress(ValueError):
                waiting.remove(who)

    def admit(self, now_ns: int) -> list[int]:
        """Those who are let in now."""
        if self._lonely and not self.inside:
            self.alone = self._lonely.popleft()
            self.inside.add(self.alone)
            return [self.alone]
        if self.alone is not None or self._shut_ns(now_ns):
            return []
        found, self._sharing = self._sharing, []
        self.inside.update(found)
        return found

    def opens_ns(self, now_ns: int) -> int | None:
        """How long until someone is let in though nobody came or went; None where that does not happen."""
        waits = self._sharing and self.alone is None and self._grace_ns
        return self._shut_ns(now_ns) or None if waits else None

    def _shut_ns(self, now_ns: int) -> int:
        """How long those who share stay outside for the sake of one who waits to be alone."""
        into = (now_ns - self._since_ns) % self._cycle_ns if self._cycle_ns else 0
        return self._cycle_ns - into if self._lonely and into >= self._grace_ns else 0


class Gate:
    """The same for threads, as a context: who waits sleeps until it is let in."""

    def __init__(self, order: Order | None = None, clock: Clock | None = None) -> None:
        self._order, self._clock = order or Order(), clock or SystemClock()
        self._lock, self._numbers = threading.Lock(), count()
        self._waiting: dict[int, threading.Event] = {}
        self.closed = False
        self.closing, self._close = os.pipe()  # readable once it is closed

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.closing, self._close):
            os.close(end)

    @contextmanager
    def entered(self, *, alone: bool) -> Iterator[None]:
        """Inside, with others or alone. Raises StoppedError."""
        who, event = next(self._numbers), threading.Event()
        try:
            self._wait(who, event, alone)
            yield
        finally:
            with self._lock:
                self._waiting.pop(who, None)
                self._order.go(who)
                self._let_in()

    def _wait(self, who: int, event: threading.Event, alone: bool) -> None:
        with self._lock:
            self._waiting[who] = event
            self._order.come(who, alone, self._clock.now_ns())
            wait_s = self._let_in()
        while not (event.wait(wait_s) or self.closed):
            with self._lock:
                wait_s = self._let_in()
        if self.closed:
            raise StoppedError

    def _let_in(self) -> float | None:
        now_ns = self._clock.now_ns()
        for who in self._order.admit(now_ns):
            self._waiting.pop(who).set()
        wait_ns = self._order.opens_ns(now_ns)
        return None if wait_ns is None else wait_ns / 1e9

    def close(self) -> None:
        """Let nobody in any more, and wake those who wait, here and at `closing`."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            os.write(self._close, b"\0")
            for event in self._waiting.values():
                event.set()
