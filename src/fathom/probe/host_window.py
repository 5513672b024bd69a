"""`--step-on none`: one window on the host's clock, for a program without repeated steps."""

from __future__ import annotations

from typing import Any, Protocol

from fathom.pristine import time
from fathom.probe.conductor import Conductor
from fathom.probe.faults import guarded
from fathom.probe.frames import main_thread
from fathom.probe.orders import Job
from fathom.probe.threads import Flag, Lock, start_new_thread

PATIENCE_S, POLL_S, LENGTH_S = 0.5, 0.02, 5.0
BURST = 1


class Marked(Protocol):
    """The part of a recording that the window uses."""

    torch: Any
    conductor: Conductor

    def host_mark(self, k: int, phase: str, burst: int) -> None:
        """Record a boundary of the host's window."""


class HostWindow:
    """A window that opens once CUDA is in use, or half a second after torch's import, and lasts 5 s at most.

    It runs in its own thread, because no step of the program calls the probe.
    """

    def __init__(self, session: Marked) -> None:
        self._session = session
        self._over = Flag()
        self._open = False
        self._lock = Lock()
        start_new_thread(self._run, ())

    @guarded("the host's window")
    def _run(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not self._session.torch.cuda.is_initialized():
            if self._over.wait(POLL_S):
                return
        self._begin()
        self._over.wait(LENGTH_S)
        self.close()

    def _begin(self) -> None:
        with self._lock:
            job = Job("timeline", 1, ops=True)
            if self._over.is_set or not self._session.conductor.recorder.arm(job):
                return
            conductor = self._session.conductor
            conductor.safely(conductor.beacon.prepare, job.phase)
            conductor.recorder.start(job, 0, BURST)
            conductor.safely(conductor.beacon.follow, job.phase, main_thread())
            self._open = True
            self._session.host_mark(0, "timeline", BURST)

    def close(self) -> None:
        """End and save the window; do nothing if it never opened."""
        self._over.set()
        with self._lock:
            if not self._open:
                return
            self._open = False
            conductor = self._session.conductor
            conductor.safely(conductor.beacon.follow, "end")
            self._session.host_mark(1, "transition", BURST + 1)
            self._session.conductor.recorder.stop(1)
