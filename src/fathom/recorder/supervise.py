"""Wait for the program: forward signals, apply `--stop-after`, record how it ended.

The waiting loop receives signals one by one, instead of handlers. A handler does not learn who sent a signal.
That matters: a Ctrl-C in the terminal already reaches the program, and passing it on would interrupt the
program's cleanup.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from fathom.atomic import write_private
from fathom.recorder.tree import ProcessTree

POLL = 0.2  # seconds between two checks of raw/stop
# How long the program gets to end after each signal, the mildest first.
GRACE = ((signal.SIGINT, 15.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
TRIGGER = signal.SIGUSR2
_TAKEN = {*FORWARDED, TRIGGER, signal.SIGCHLD}
_FROM_KERNEL = 0x80  # si_code of a signal sent by a terminal to its foreground group


@dataclass
class Ending:
    """How the program ended. `exit_status` is 128 + signal if a signal killed it, 0 for `--stop-after`.

    `exit_status` is None if the program continued after its recording.
    """

    exit_status: int | None
    signal: str | None
    ended: str  # finished, exited (nonzero status), crashed, interrupted, killed, stopped
    end_ns: int

    def write(self, raw: Path, abstained: list[dict[str, str]]) -> None:
        """Write `end.json` to the folder of raw records; `abstained`: data that the parent did not record."""
        write_private(raw / "end.json", json.dumps({**asdict(self), "abstained": abstained}, indent=1))

    @property
    def signal_number(self) -> int | None:
        """Return the number of the signal that killed the program."""
        return None if self.signal is None or self.ended == "stopped" else signal.Signals[self.signal].value


class Supervisor:
    """Waits for the process `child`, whose raw records go to `raw`."""

    def __init__(
        self, child: int, raw: Path, inbox: Inbox | PortableInbox, *, stop: bool, say: Callable[[str], None]
    ) -> None:
        self.child, self.raw, self.inbox, self.stop, self.say = child, raw, inbox, stop, say
        self.asked: set[int] = set()
        self.stopping: Stopping | None = None

    def wait(self) -> Ending:
        """Wait until the program has ended; do not wait for processes that it left behind."""
        while True:
            self._pass_on(self.inbox.wait(POLL))
            if self.stop:
                self._look_for_stop()
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                if self.stopping:
                    self.stopping.tree.end_rest()
                return ending(os.waitstatus_to_exitcode(status), self.asked, self.stopping is not None)

    def _pass_on(self, arrived: tuple[int, bool] | None) -> None:
        if arrived is None:
            return
        number, from_terminal = arrived
        if number == TRIGGER:
            self._trigger()
        elif number in FORWARDED:
            self.asked.add(number)
            if not from_terminal:
                os.kill(self.child, number)

    def _trigger(self) -> None:
        try:
            (self.raw / "trigger").write_text(str(time.time_ns()))
        except OSError as error:
            self.say(f"requesting a timeline failed: {error.strerror}")

    def _look_for_stop(self) -> None:
        if self.stopping:
            self.stopping.go_on()
        elif (self.raw / "stop").exists():
            self.say("the recording is complete; ending the program (--stop-after)")
            self.stopping = Stopping(ProcessTree(self.child))


class Stopping:
    """Ends the program's process tree with increasingly forceful signals.

    Agents of torchrun end with their workers, and an interrupt makes them print a traceback.
    """

    def __init__(self, tree: ProcessTree, clock: Callable[[], float] = time.monotonic) -> None:
        self.tree, self.clock = tree, clock
        self.ways = list(GRACE)
        self.until = -1.0
        self.go_on()

    def go_on(self) -> None:
        """Send the next signal if the grace period of the last one is over."""
        if self.ways and self.clock() >= self.until:
            number, grace = self.ways.pop(0)
            self.until = self.clock() + grace
            self.tree.send(number, but=self.tree.agents() if number == signal.SIGINT else ())


def ending(code: int, asked: set[int], stopped: bool) -> Ending:
    """Classify an end by `code` (`os.waitstatus_to_exitcode`) and the signals `asked` received until then."""
    died_of = signal.Signals(-code).name if code < 0 and -code in set(signal.Signals) else None
    status = 128 - code if code < 0 else code
    if stopped:
        return Ending(0, died_of, "stopped", time.time_ns())
    return Ending(status, died_of, _how(code, asked), time.time_ns())


def _how(code: int, asked: set[int]) -> str:
    if -code == signal.SIGKILL:
        return "killed"
    if -code in _ASKED_TO_END or code == 130 or asked.intersection(_ASKED_TO_END):
        return "interrupted"
    if code < 0:
        return "crashed"
    return "exited" if code else "finished"


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
