"""Access to the machine. Proofs share it while they prepare, and use it exclusively while they take samples.

During exclusive use the processes of other proofs are stopped, so no proof waits for another to finish.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from itertools import count
from math import inf

from fathom.errors import FathomError
from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S

SETTLE_S = 0.02  # after stopping others, for work that they have queued on a GPU


class StoppedError(Exception):
    """The gate was closed, and admits no more users."""


class Order:
    """The order of admission, without threads.

    Exclusive users are admitted before users who share, otherwise in order of arrival. While an exclusive
    user is inside or waits for others to leave, only stoppable users may be inside or enter.
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
        """Admit the users whose turn it is, and return them."""
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
        """Context manager inside the gate, shared or exclusive, with this user's number. `group`: the process
        group that works for the user and may be stopped. Raises StoppedError.
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
        """Admit no more users; wake the threads that wait for admission or for `closing` to be readable."""
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


class TooLongError(FathomError):
    """A proof exceeded its time limit."""


class Turn:
    """A proof's access to the machine, and its clock, which pauses while other proofs delay it.

    By default there are no other proofs. `limit_s`: seconds on that clock after which the proof is abandoned.
    `quiet`: never share the machine, for candidates that tune themselves by timing. `device`: the device of
    the samples. For one thread at a time.
    """

    def __init__(
        self,
        gate: Gate | None = None,
        limit_s: float = inf,
        quiet: bool = False,
        device: str = "cpu",
        clock: Clock | None = None,
    ) -> None:
        self._gate, self._quiet, self._clock = gate, quiet, clock or SystemClock()
        self._device, self._waited_ns, self._entered_ns = device, 0, 0
        self._inside: str | None = None
        self._number = 0  # given by the gate
        self.limit_s, self._began_ns = limit_s, self._clock.now_ns()

    @property
    def closing(self) -> list[int]:
        """File descriptors that become readable when proofs must end."""
        return [] if self._gate is None else [self._gate.closing]

    def now_ns(self) -> int:
        """Return the time in ns, without the time spent waiting for other proofs or stopped for them."""
        return self._clock.now_ns() - self._waited_ns - self._stopped_ns()

    def _stopped_ns(self) -> int:
        """Return the time in ns for which this proof was stopped since its admission."""
        return self._gate.exclusive_ns() - self._entered_ns if self._gate and self._inside == "shared" else 0

    def sleep(self, seconds: float) -> None:
        """Sleep on the proof's clock."""
        self._clock.sleep(seconds)

    def left_s(self) -> float:
        """Return the seconds left until the limit. Raises TooLongError if none are left."""
        left = self.limit_s - (self.now_ns() - self._began_ns) / NS_PER_S
        if left <= 0:
            raise TooLongError(f"The proof did not end within {self.limit_s:g} s; allow more with --limit.")
        return left

    @contextmanager
    def shared(self, group: int | None = None) -> Iterator[None]:
        """Context manager that shares the machine, unless this proof has it exclusively. `group`: the process
        group that works in it and is stopped for exclusive users. Raises TooLongError, StoppedError.
        """
        self.left_s()
        with self._entered(exclusive=self._quiet, group=group):
            yield

    def started(self, group: int) -> None:
        """Declare, in a shared context, that only this process group works from now on and may be stopped."""
        if self._gate and self._inside == "shared":
            self._gate.started(self._number, group)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Context manager for exclusive use of the machine. Raises TooLongError, StoppedError."""
        self.left_s()
        with self._entered(exclusive=True):
            yield

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Context manager for work of this process. Shared only on a CPU: a GPU's samples are undisturbed.

        Raises TooLongError, StoppedError.
        """
        with self.shared() if self._device == "cpu" else nullcontext():
            yield

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Context manager for shared use without a time limit; entered at once if proofs must end."""
        with ExitStack() as stack:
            with suppress(StoppedError):
                stack.enter_context(self._entered(exclusive=self._quiet))
            yield

    @contextmanager
    def _entered(self, *, exclusive: bool, group: int | None = None) -> Iterator[None]:
        if self._inside is not None:
            if exclusive and self._inside != "exclusive":
                raise RuntimeError("leave shared use before asking for exclusive use")
            yield
            return
        came_ns, gate = self._clock.now_ns(), self._gate
        with gate.entered(exclusive=exclusive, group=group) if gate else nullcontext(0) as self._number:
            self._waited_ns += self._clock.now_ns() - came_ns
            self._entered_ns = gate.exclusive_ns() if gate else 0
            self._inside = "exclusive" if exclusive else "shared"
            try:
                yield
            finally:
                self._waited_ns += self._stopped_ns()
                self._inside = None
