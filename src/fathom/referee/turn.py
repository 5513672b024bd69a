"""One proof beside others: when it may use the machine, and how much time of its own it has left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from math import inf

from fathom.errors import FathomError
from fathom.referee.gate import Gate, StoppedError
from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S


class TooLongError(FathomError):
    """A proof took longer than it may."""


class Turn:
    """A proof's own clock, which stands still while others hold it up; by default there are none.

    `limit_s`: seconds by that clock after which it is given up. `quiet`: it never shares the machine, as
    where what it runs is chosen by timing. `device`: what the samples are of. Used by one thread at a time.
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
        self._number = 0  # under which the gate let it in
        self.limit_s, self._began_ns = limit_s, self._clock.now_ns()

    @property
    def closing(self) -> list[int]:
        """What becomes readable when everything is to end."""
        return [] if self._gate is None else [self._gate.closing]

    def now_ns(self) -> int:
        """Nanoseconds, those left out in which it waited for others or was stopped for them."""
        return self._clock.now_ns() - self._waited_ns - self._stopped_ns()

    def _stopped_ns(self) -> int:
        """Since it came in."""
        return self._gate.alone_ns() - self._entered_ns if self._gate and self._inside == "shared" else 0

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._clock.sleep(seconds)

    def left_s(self) -> float:
        """Seconds until the limit. Raises TooLongError beyond it."""
        left = self.limit_s - (self.now_ns() - self._began_ns) / NS_PER_S
        if left <= 0:
            raise TooLongError(f"It was not proven within {self.limit_s:g} s; give it more with --limit.")
        return left

    @contextmanager
    def shared(self, group: int | None = None) -> Iterator[None]:
        """Beside others; alone where it is alone already. `group`: of processes that work meanwhile, and are
        stopped while another is alone. Raises TooLongError, StoppedError."""
        self.left_s()
        with self._entered(alone=self._quiet, group=group):
            yield

    def started(self, group: int) -> None:
        """Inside: nothing but these processes works for it from now on, so that they may be stopped."""
        if self._gate and self._inside == "shared":
            self._gate.started(self._number, group)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """With nobody else on the machine. Raises TooLongError, StoppedError."""
        self.left_s()
        with self._entered(alone=True):
            yield

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Work of this process itself; it disturbs no samples of a GPU. Raises TooLongError, StoppedError."""
        with self.shared() if self._device == "cpu" else nullcontext():
            yield

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Beside others, whatever the time; at once where everything is to end."""
        with ExitStack() as stack:
            with suppress(StoppedError):
                stack.enter_context(self._entered(alone=self._quiet))
            yield

    @contextmanager
    def _entered(self, *, alone: bool, group: int | None = None) -> Iterator[None]:
        if self._inside is not None:
            if alone and self._inside != "alone":
                raise RuntimeError("who shares the machine has to leave before it can have it alone")
            yield
            return
        came_ns = self._clock.now_ns()
        with self._gate.entered(alone=alone, group=group) if self._gate else nullcontext(0) as self._number:
            self._waited_ns += self._clock.now_ns() - came_ns
            self._entered_ns = self._gate.alone_ns() if self._gate else 0
            self._inside = "alone" if alone else "shared"
            try:
                yield
            finally:
                self._waited_ns += self._stopped_ns()
                self._inside = None
