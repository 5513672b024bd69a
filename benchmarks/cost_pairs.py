"""Pairs of a program untouched and the same recorded; on each GPU one pair takes its turns at a time.

Where there are several places, the others start and end meanwhile, on cores of their own.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import statistics
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from launcher import RECORDING, pinned, records, start, started_by
from turns import EndedBadlyError, kill, take_turns

WARM_UP = 60  # steps that are compared nowhere: compilation, caches, settling


class FailedError(Exception):
    """A pair tells nothing; in words."""


@dataclass
class Run:
    """One run of a program: its step times in seconds, and the phase of each step where it was recorded."""

    steps_s: list[float]
    phases: dict[int, str]


@dataclass(frozen=True)
class Place:
    """Where pairs run one after the other: their folder, cores and GPU, where those are chosen.

    `alone` is held by the pair that takes its turns, where several places have the same GPU.
    """

    folder: Path
    cores: str | None = None
    gpu: str | None = None
    alone: asyncio.Lock | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": self.gpu}


def places(out: Path, cores: Sequence[str], gpus: Sequence[str]) -> list[Place]:
    """A place for each set of cores, dealt out to the GPUs in turn; without sets one for each GPU."""
    count = max(len(cores), len(gpus), 1)
    if 0 < len(cores) < len(gpus):
        raise FailedError(f"{len(gpus)} GPUs need as many sets of cores, and there are {len(cores)}")
    if sum(map(len, map(core_numbers, cores))) > len(set().union(*map(core_numbers, cores))):
        raise FailedError(f"the sets of cores overlap: {' '.join(cores)}")
    folders = [out / "run"] if count == 1 else [out / f"run-{number}" for number in range(count)]
    shared = count > max(len(gpus), 1)
    locks = {gpu: asyncio.Lock() if shared else None for gpu in gpus or [None]}
    dealt = zip(folders, cycle(cores or [None]), cycle(locks), strict=False)
    return [Place(folder, some, gpu, locks[gpu]) for folder, some, gpu in dealt]


def core_numbers(cores: str) -> set[int]:
    """The cores of a list as `taskset` takes it, such as 2-5,8 or 0-14:2."""
    found: set[int] = set()
    for part in cores.split(","):
        span, _, stride = part.partition(":")
        first, _, last = span.partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(stride or 1)))
    return found


async def run_all(
    places: Sequence[Place], numbers: Iterator[int], work: Callable[[int, Place], Awaitable[None]]
) -> None:
    """Each place takes the next number until there is none; what one raises ends all, as SIGTERM does."""

    async def at(place: Place) -> None:
        for number in numbers:
            await work(number, place)

    whole = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)
    tasks = [asyncio.create_task(at(place)) for place in places]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Side(NamedTuple):
    """A program of a pair that was started, and the files that it makes."""

    process: subprocess.Popen[bytes]
    begun: Path
    times: Path
    log: Path


async def side_by_side(
    program: str, arguments: list[str], recorded: list[str], place: Place, first: int
) -> tuple[Run, Run]:
    """A program untouched and under Fathom, step by step in turns; `first` (0, 1) runs in the first turn.

    Raises FailedError.
    """
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    sides: list[Side] = []
    try:
        for name, ways in (("untouched", None), ("recorded", recorded)):
            sides.append(started(program, arguments, ways, place, name))
        await to_their_end(sides[::-1] if first else sides, place)
    finally:
        kill([side.process for side in sides])
    steps = [json.loads(side.times.read_text())["steps_s"] for side in sides]
    return Run(steps[0], {}), Run(steps[1], phases_of(records(place.folder / RECORDING)))


def started(program: str, arguments: list[str], ways: list[str] | None, place: Place, name: str) -> Side:
    begun, times, log = (place.folder / f"{name}.{ending}" for ending in ("begun", "json", "txt"))
    command = started_by(program, [*arguments, "--times", str(times)], place.folder, ways)
    command = pinned(command, place.cores)
    process = start(command, log, session=True, BEGUN=str(begun), **place.environment)
    return Side(process, begun, times, log)


async def to_their_end(sides: Sequence[Side], place: Place) -> None:
    processes, begun, over, logs = zip(*sides, strict=True)
    try:
        await take_turns(processes, begun, over, place.alone)
    except EndedBadlyError as error:
        raise FailedError(f"failed: see {logs[processes.index(error.program)]}") from None
    if place.alone and not all(mark.exists() for mark in begun):
        raise FailedError("does not say when its steps begin: give each GPU one set of cores")


def phases_of(found: Iterable[dict[str, Any]]) -> dict[int, str]:
    """Phase of each step."""
    runs = (record for record in found if record.get("t") == "marks")
    return {run["k"] + place: run["phase"] for run in runs for place in range(len(run["ns"]))}


def compared(untouched: Run, recorded: Run, phase: str) -> tuple[float, float, int]:
    """Median step of both runs in seconds, where the recorded one was in `phase`, and their count.

    A mark may lie inside the program's own step, so a step counts only if the one before was there too.
    Raises FailedError.
    """
    last = min(len(untouched.steps_s), len(recorded.steps_s))
    chosen = [
        k for k in range(WARM_UP, last) if recorded.phases.get(k) == recorded.phases.get(k - 1) == phase
    ]
    if not chosen:
        raise FailedError(f"no step after the first {WARM_UP} was recorded in the phase '{phase}'")
    plain = statistics.median(untouched.steps_s[WARM_UP:last])
    return plain, statistics.median(recorded.steps_s[k] for k in chosen), len(chosen)
