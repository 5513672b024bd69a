"""Programs in pairs whose sides take turns: what disturbs the machine disturbs both alike.

Each is stopped (SIGSTOP, with all that it started) while the other runs, for a fraction of a second at a
time, so that drifts of the host within a run cancel. A step that was interrupted is longer by a turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TURN_S = 0.25
LOOK_S = 0.02


@dataclass(frozen=True, eq=False)
class Side:
    """A program of a pair that was started; it makes the files `begun` before its steps and `over` after."""

    process: subprocess.Popen[bytes]
    begun: Path
    over: Path
    log: Path

    @property
    def is_over(self) -> bool:
        return self.over.exists() or status(self.process) is not None


Pair = Sequence[Side]  # the first side has the first turn


class EndedBadlyError(Exception):
    """A program ended with a status other than 0, or by a signal."""

    def __init__(self, side: Side) -> None:
        super().__init__(f"status {status(side.process)} of {side.process.args}")
        self.side = side


async def take_turns(lanes: Sequence[Sequence[Pair]], turn_s: float = TURN_S) -> None:
    """Let the programs run until all have ended. In each lane, such as a GPU, one runs at a time.

    Whoever has begun waits, stopped, until all have. Then the pairs of a lane take their turns, one pair
    after the other, and nothing else runs: a side that is over is stopped again until all are, and then
    they end freely. Raises EndedBadlyError.
    """
    sides = [side for lane in lanes for pair in lane for side in pair]
    await _begin(sides)
    orders = [_order(lane) for lane in lanes]
    while now := [side for order in orders if (side := next(order, None))]:
        await _turn(now, sides, turn_s)
    for side in sides:
        _signal(side.process, "resume")
    while any(status(side.process) is None for side in sides):
        await _look(sides)


def _order(lane: Iterable[Pair]) -> Iterator[Side]:
    """The side with the next turn, until all are over."""
    for pair in lane:
        while any(not side.is_over for side in pair):
            yield from (side for side in pair if not side.is_over)


async def _begin(sides: Sequence[Side]) -> None:
    waiting = list(sides)
    while waiting:
        ready = [side for side in waiting if side.begun.exists() or status(side.process) is not None]
        for side in ready:
            _signal(side.process, "suspend")
            waiting.remove(side)
        await _look(sides)


async def _turn(now: Iterable[Side], sides: Iterable[Side], turn_s: float) -> None:
    running = list(now)
    for side in running:
        _signal(side.process, "resume")
    until = time.monotonic() + turn_s
    while running and (left := until - time.monotonic()) > 0:
        await _look(sides, min(LOOK_S, left))
        for side in [side for side in running if side.is_over]:
            _signal(side.process, "suspend")
            running.remove(side)
    for side in running:
        _signal(side.process, "suspend")


async def _look(sides: Iterable[Side], after_s: float = LOOK_S) -> None:
    await asyncio.sleep(after_s)
    for side in sides:
        if status(side.process):
            raise EndedBadlyError(side)


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
        for item in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                getattr(item, name)()
