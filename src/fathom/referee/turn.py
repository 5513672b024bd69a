"""One proof beside others: its access to the machine, and its remaining time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from math import inf

from fathom.errors import FathomError
from fathom.referee.gate import Gate, StoppedError
from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S


class TooLongError(FathomError):
    """A proof exceeded its time limit."""


class Turn:
    """A proof's access and its clock, which pauses while other proofs delay it. By default there are none.

    `limit_s`: seconds on that clock after which the proof is abandoned. `quiet`: never share the machine, for
    candidates that tune themselves by timing. `device`: the device of the samples. For one thread at a time.
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
        """A context that shares the machine, unless this proof has it exclusively. `group`: the process
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
        """A context of exclusive use. Raises TooLongError, StoppedError."""
        self.left_s()
        with self._entered(exclusive=True):
            yield

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A context for work of this process. It is shared only on a CPU: samples of a GPU are not disturbed.

        Raises TooLongError, StoppedError.
        """
        with self.shared() if self._device == "cpu" else nullcontext():
            yield

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """A shared context without a time limit; entered at once if proofs must end."""
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
