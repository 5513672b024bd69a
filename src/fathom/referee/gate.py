"""Access to the machine. Proofs share it while they prepare, and use it exclusively while they take samples.

During exclusive use the processes of other proofs are stopped, so no proof waits for another to finish.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from fathom.timing import Clock, SystemClock

SETTLE_S = 0.02  # after stopping others, for work that they have queued on a GPU


class StoppedError(Exception):
    """The gate was closed, and admits nobody any more."""


class Order:
    """The order of admission, without threads.

    Exclusive users go before those who share; otherwise first come, first served. Beside an exclusive user,
    only stoppable users may be inside; while it waits for the others to leave, only those are admitted.
    """

    def __init__(self) -> None:
        self.inside: dict[int, bool] = {}  # user → whether it can be stopped
        self.exclusive: int | None = None
        self._shared: dict[int, bool] = {}
        self._exclusive: deque[int] = deque()

    def enqueue(self, who: int, exclusive: bool, stoppable: bool = False) -> None:
        """Add `who` to those waiting for admission."""
        if exclusive:
            self._exclusive.append(who)
        else:
            self._shared[who] = stoppable

    def mark_stoppable(self, who: int) -> None:
        """Mark `who`, which shares, as stoppable."""
        self.inside[who] = True

    def remove(self, who: int) -> None:
        """Remove `who` from the gate or from those waiting."""
        self.inside.pop(who, None)
        self._shared.pop(who, None)
        self.exclusive = None if self.exclusive == who else self.exclusive
        with suppress(ValueError):
            self._exclusive.remove(who)

    def admit(self) -> list[int]:
        """Admit those whose turn it is, and return them."""
        if self.exclusive is not None:
            return []
        if self._exclusive and all(self.inside.values()):
            self.exclusive = self._exclusive.popleft()
            self.inside[self.exclusive] = False
            return [self.exclusive]
        admitted = [who for who, stoppable in self._shared.items() if stoppable or not self._exclusive]
        self.inside |= {who: self._shared.pop(who) for who in admitted}
        return admitted


class Gate:
    """An `Order` for threads, as a context: each thread sleeps until it is admitted."""

    def __init__(self, order: Order | None = None, clock: Clock | None = None) -> None:
        self._order, self._clock = order or Order(), clock or SystemClock()
        self._lock, self._numbers = threading.Lock(), count()
        self._waiting: dict[int, threading.Event] = {}
        self._groups: dict[int, int] = {}
        self._exclusive_ns, self._since_ns = 0, 0  # the latter: when the present exclusive user was admitted
        self.closed = False
        self.closing, self._close = os.pipe()  # becomes readable when the gate is closed

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.closing, self._close):
            os.close(end)

    def exclusive_ns(self) -> int:
        """The total time of exclusive use in ns."""
        with self._lock:
            lasting = self._clock.now_ns() - self._since_ns if self._order.exclusive is not None else 0
            return self._exclusive_ns + lasting

    @contextmanager
    def entered(self, *, exclusive: bool, group: int | None = None) -> Iterator[int]:
        """A context inside the gate, shared or exclusive, with this user's number. `group`: the process group
        that works for the user and may be stopped. Raises StoppedError.
        """
        who, event = next(self._numbers), threading.Event()
        try:
            self._wait(who, event, exclusive, group)
            if exclusive:
                with self._others_stopped():
                    yield who
            else:
                yield who
        finally:
            with self._lock:
                self._leave(who)
                self._let_in()

    def started(self, who: int, group: int) -> None:
        """Declare that from now on only this process group works for `who`, so that it may be stopped."""
        with self._lock:
            self._groups[who] = group
            self._order.mark_stoppable(who)
            self._let_in()

    def _wait(self, who: int, event: threading.Event, exclusive: bool, group: int | None) -> None:
        with self._lock:
            self._waiting[who] = event
            if group is not None:
                self._groups[who] = group
            self._order.enqueue(who, exclusive, group is not None)
            self._let_in()
        if not self.closed:
            event.wait()
        if self.closed:
            raise StoppedError

    def _let_in(self) -> None:
        for who in self._order.admit():
            if self._order.exclusive == who:
                self._since_ns = self._clock.now_ns()
            self._waiting.pop(who).set()

    def _leave(self, who: int) -> None:
        if self._order.exclusive == who:
            self._exclusive_ns += self._clock.now_ns() - self._since_ns
        self._waiting.pop(who, None)
        self._groups.pop(who, None)
        self._order.remove(who)

    @contextmanager
    def _others_stopped(self) -> Iterator[None]:
        with self._lock:
            groups = [self._groups[who] for who, stoppable in self._order.inside.items() if stoppable]
        try:
            _signal(groups, signal.SIGSTOP)
            if groups:
                self._clock.sleep(SETTLE_S)
            yield
        finally:
            _signal(groups, signal.SIGCONT)

    def close(self) -> None:
        """Admit nobody any more; wake the threads that wait for admission or for `closing` to be readable."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            os.write(self._close, b"\0")
            for event in self._waiting.values():
                event.set()


def _signal(groups: Iterable[int], number: signal.Signals) -> None:
    """Signal the groups, skipping those that have ended, even if their id was reused. A process that does
    not lead its group yet gets the signal itself.
    """
    for group in groups:
        for send in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                send(group, number)
