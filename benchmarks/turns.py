"""Programs that take turns on the same cores and GPU: what disturbs the machine disturbs them alike.

Each is stopped (SIGSTOP, with all that it started) while the other runs, for a fraction of a second at a
time, so that drifts of the host within a run cancel. A step that was interrupted is longer by a turn.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

TURN_S = 0.25
LOOK_S = 0.02


def take_turns(programs: Sequence[subprocess.Popen], begun: Sequence[Path], turn_s: float = TURN_S) -> None:
    """Let the programs run until all have ended: freely until each made its file of `begun`, then in turn.

    One that has begun waits for the others.
    """
    waiting = dict(zip(programs, begun, strict=True))
    while waiting:
        for program, file in list(waiting.items()):
            if file.exists() or program.poll() is not None:
                _signal(program, "suspend")
                del waiting[program]
        time.sleep(LOOK_S)
    while left := [program for program in programs if program.poll() is None]:
        for program in left:
            with _running(program):
                _wait(program, turn_s)


@contextmanager
def _running(program: subprocess.Popen) -> Iterator[None]:
    _signal(program, "resume")
    yield
    _signal(program, "suspend")


def _wait(program: subprocess.Popen, seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        program.wait(seconds)


def kill(programs: Sequence[subprocess.Popen]) -> None:
    """End them with all that they started."""
    for program in programs:
        _signal(program, "kill")
        program.wait()


def _signal(program: subprocess.Popen, name: str) -> None:
    """Suspend, resume or kill a process and those below it; those that are over are left out."""
    if program.poll() is not None:
        return  # its number may be another's by now
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(program.pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                getattr(one, name)()
