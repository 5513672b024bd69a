"""Tell the recorder through a named pipe which thread to sample, and when."""

from __future__ import annotations

import sysconfig
from dataclasses import asdict
from typing import TYPE_CHECKING

from fathom.atomic import atomic_write
from fathom.pristine import json, open, os
from fathom.probe import threads
from fathom.probe.frames.iterators import Iterators
from fathom.probe.frames.layout import FrameLayout, NoFramesError, calibrate, thread_state
from fathom.probe.threads import get_ident, native_id

if TYPE_CHECKING:
    from fathom.probe.reporter import Reporter

FIFO, LAYOUT = "stacks.fifo", "frames-{pid}.json"
DENSE, SPARSE = "dense", "sparse"  # for every gap in a burst; for long gaps in clean steps
SAMPLED = {"timeline": DENSE, "slow": DENSE, "clean": SPARSE}  # phases with sampled steps
WHAT = "host stacks"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Beacon:
    """Switches the sampling of one thread on and off. Each switch costs three system calls."""

    def __init__(self, session: Reporter, off: bool = False) -> None:
        self._session = session
        self._layout: FrameLayout | None = None
        self._fifo = os.path.join(session.raw, FIFO)
        self._iterators = Iterators(session.raw)
        self._off = off  # permanently: no sampler, or nothing to sample
        self._rate: str | None = None

    def follow(self, phase: str, ident: int | None = None) -> None:
        """Switch sampling for `phase`, of the calling thread or the thread `ident`; off unless in SAMPLED."""
        if phase == "settle" and not self._off:
            self._ready()  # calibrate now: it takes milliseconds, which would lengthen a clean step
        rate = SAMPLED.get(phase)
        if rate == self._rate or self._off:
            return
        self._rate = rate
        state = (thread_state(ident) if self._ready() else 0) if rate else 0
        if not self._off:
            main = _main(ident) if state else None
            thread = _native(ident)
            self._send({"pid": os.getpid(), "thread": thread, "state": state, "rate": rate, "main": main})

    def prepare(self, phase: str) -> None:
        """Note the living iterators before a burst; the search would add tens of ms to a recorded step."""
        if SAMPLED.get(phase) == DENSE and not self._off:
            self._iterators.note()

    def _ready(self) -> bool:
        """Open the pipe and calibrate, once; return False if there is no sampler yet, or it failed."""
        if self._layout is not None:
            return True
        try:
            os.close(self._open())
            layout = calibrate()
            self._leave(layout)
        except OSError:  # a program that records itself may be faster than its sampler: try again later
            return False
        except NoFramesError as why:
            self._off = True
            self._session.note(WHAT, str(why))
            return False
        self._layout = layout
        return True

    def _leave(self, layout: FrameLayout) -> None:
        paths = sysconfig.get_paths()
        record: dict[str, object] = {
            "pid": os.getpid(),
            "layout": asdict(layout),
            "standard": sorted({paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__)}),
            "fathom": _PACKAGE,
            "folder": os.getcwd(),
        }
        path = os.path.join(self._session.raw, LAYOUT.format(pid=os.getpid()))
        with atomic_write(path) as part, open(part, "w", encoding="utf-8") as file:
            json.dump(record, file)

    def _open(self) -> int:
        """Open the pipe, for one message: an open file would be among the program's. Raises OSError."""
        return os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _send(self, message: dict[str, object]) -> None:
        try:
            pipe = self._open()  # fails if the recorder has ended, so that no write raises SIGPIPE
            try:
                os.write(pipe, json.dumps(message).encode() + b"\n")
            finally:
                os.close(pipe)
        except OSError:  # the recorder has ended or falls behind
            self._off = True


def _native(ident: int | None) -> int:
    if ident is None or ident == get_ident():
        return native_id()
    main = threads.main_thread()
    return int(main.native_id if ident == main.ident else 0)


def _main(ident: int | None) -> tuple[int, int] | None:
    """Return the main thread and the address of its state, if another thread is sampled: it may be a worker
    of the main thread's event loop.
    """
    main = threads.main_thread()
    if (get_ident() if ident is None else ident) == main.ident:
        return None
    return int(main.native_id or 0), thread_state(main.ident)


def main_thread() -> int:
    """Return the main thread's identifier."""
    return int(threads.main_thread().ident)
