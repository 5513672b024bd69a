"""Programs that take turns on the same cores and GPU: what disturbs the machine disturbs them alike.

Each is stopped (SIGSTOP, with all that it started) while the other runs, for a fraction of a second at a
time, so that drifts of the host within a run cancel. A step that was interrupted is longer by a turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil

TURN_S = 0.25
LOOK_S = 0.02


class EndedBadlyError(Exception):
    """A program ended with a status other than 0, or by a signal."""

    def __init__(self, program: subprocess.Popen) -> None:
        super().__init__(f"status {status(program)} of {program.args}")
        self.program = program


async def take_turns(
    programs: Sequence[subprocess.Popen],
    begun: Sequence[Path],
    over: Sequence[Path] = (),
    alone: asyncio.Lock | None = None,
    turn_s: float = TURN_S,
) -> None:
    """Let the programs run until all have ended: freely until each made its file of `begun`, then in turn.

    One that has begun waits for the others, and they together for `alone`, which they hold during their
    turns. When each has made its file of `over`, they end freely. Raises EndedBadlyError.
    """
    await _begin(programs, begun)
    async with alone or nullcontext():
        await _alternate(programs, over, turn_s)
    for program in programs:
        _signal(program, "resume")
    while _left(programs):
        await asyncio.sleep(LOOK_S)


async def _begin(programs: Sequence[subprocess.Popen], begun: Sequence[Path]) -> None:
    waiting = dict(zip(programs, begun, strict=True))
    while waiting:
        left = _left(programs)
        for program, file in list(waiting.items()):
            if file.exists() or program not in left:
                _signal(program, "suspend")
                del waiting[program]
        await asyncio.sleep(LOOK_S)


async def _alternate(programs: Sequence[subprocess.Popen], over: Sequence[Path], turn_s: float) -> None:
    while (left := _left(programs)) and not (over and all(file.exists() for file in over)):
        for program in left:
            with _resumed(program):
                await _wait(program, turn_s)


@contextmanager
def _resumed(program: subprocess.Popen) -> Iterator[None]:
    _signal(program, "resume")
    yield
    _signal(program, "suspend")


async def _wait(program: subprocess.Popen, seconds: float) -> None:
    until = time.monotonic() + seconds
    while status(program) is None and (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(LOOK_S, left))


def _left(programs: Sequence[subprocess.Popen]) -> list[subprocess.Popen]:
    """Those that have not ended; raises EndedBadlyError."""
    for program in programs:
        if status(program):
            raise EndedBadlyError(program)
    return [program for program in programs if status(program) is None]


def status(program: subprocess.Popen) -> int | None:
    """0 where it ended well, None while it runs; one that ended keeps its number until it is waited for."""
    if program.returncode is not None:
        return program.returncode
    ended = os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return ended.si_status if ended else None


def kill(programs: Sequence[subprocess.Popen]) -> None:
    """End them with all that they started, and what is left of their groups where each leads one."""
    for program in programs:
        if program.returncode is None:
            _signal(program, "kill")
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
    for program in programs:
        program.wait()


def _signal(program: subprocess.Popen, name: str) -> None:
    """Suspend, resume or kill a process and those below it; those that are over are left out."""
    if program.returncode is not None:
        return  # its number may be another's by now
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(program.pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                getattr(one, name)()
