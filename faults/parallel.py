"""Runs side by side: each GPU has its part of the cores, and one program at a time that works.

Where a GPU is given more than one run at once, the others start and end meanwhile: a program takes its turn
after its imports, before its first use of the GPU, and gives it back after its last step.
"""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CPU = Path("/sys/devices/system/cpu")
TURN = "FATHOM_FAULTS_TURN"  # the file that a program locks while it works
TURN_S = 75
_here = threading.local()
_writing = threading.Lock()


def side_by_side(
    jobs: Iterable[T],
    by: Callable[[T], Hashable],
    work: Callable[[T], int],
    gpus: list[str],
    at_once: int = 1,
) -> int:
    """The sum of what `work` answers; jobs of one key of `by` follow each other on one GPU, in order."""
    lines: dict[Hashable, list[T]] = {}
    for job in jobs:
        lines.setdefault(by(job), []).append(job)
    places: queue.SimpleQueue[tuple[str, set[int], Path]] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as turns:
        for gpu, cores in zip(gpus, shares(len(gpus)), strict=True):
            for _ in range(at_once):
                places.put((gpu, cores, Path(turns) / gpu))
        pool = ThreadPoolExecutor(at_once * len(gpus), initializer=lambda: settle(*places.get()))
        try:
            return sum(pool.map(lambda line: sum(map(work, line)), lines.values()))
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C nothing more is started


def settle(gpu: str, cores: set[int], turns: Path) -> None:
    """Bind this thread to its cores, which the processes that it starts inherit, and those to its GPU."""
    os.sched_setaffinity(0, cores)  # Linux: of the calling thread alone
    _here.gpu, _here.turns = gpu, turns


def environment() -> dict[str, str]:
    """Environment variables with the GPU of a process that this thread starts."""
    gpu = getattr(_here, "gpu", None)
    return {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu, TURN: str(_here.turns)}


def takes_turns() -> bool:
    """Whether this program works while others of its GPU wait."""
    return bool(os.environ.get(TURN))


@contextmanager
def turn() -> Iterator[None]:
    """Work while no other run of this GPU does, and not for ever; at once where nobody takes turns."""
    if not takes_turns():
        yield
        return
    with Path(os.environ[TURN]).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        signal.alarm(TURN_S)
        try:
            yield
        finally:
            signal.alarm(0)
            fcntl.flock(file, fcntl.LOCK_UN)  # workers that were forked meanwhile hold the file as well


def place() -> str:
    """The GPU of this thread in words; empty where runs are not spread."""
    gpu = getattr(_here, "gpu", None)
    return "" if gpu is None else f" on GPU {gpu}"


def say(line: str) -> None:
    """Print a line whole, whoever else prints."""
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def shares(count: int) -> list[set[int]]:
    """This process's cores in `count` equal parts, siblings of one core together; what is left over idles.

    Where there are fewer cores than parts, every part is all of them.
    """
    cores = sorted(os.sched_getaffinity(0), key=_position)
    each = len(cores) // count
    if not each:
        return [set(cores)] * count
    return [set(cores[part * each : (part + 1) * each]) for part in range(count)]


def _position(cpu: int) -> tuple[int, int, int]:
    """Socket, core and number of a logical processor; without the first two where they are not told."""
    topology = CPU / f"cpu{cpu}" / "topology"
    try:
        socket, core = (int((topology / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return 0, cpu, cpu
    return socket, core, cpu
