"""Runs side by side, one at a time on each GPU, each with its part of the cores."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CPU = Path("/sys/devices/system/cpu")
_here = threading.local()
_writing = threading.Lock()


def side_by_side(
    jobs: Iterable[T], by: Callable[[T], Hashable], work: Callable[[T], int], gpus: list[str]
) -> int:
    """The sum of what `work` answers; jobs of one key of `by` follow each other on one GPU, in order."""
    lines: dict[Hashable, list[T]] = {}
    for job in jobs:
        lines.setdefault(by(job), []).append(job)
    places: queue.SimpleQueue[tuple[str, set[int]]] = queue.SimpleQueue()
    for place in zip(gpus, shares(len(gpus)), strict=True):
        places.put(place)
    pool = ThreadPoolExecutor(len(gpus), initializer=lambda: settle(*places.get()))
    try:
        return sum(pool.map(lambda line: sum(map(work, line)), lines.values()))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C nothing more is started


def settle(gpu: str, cores: set[int]) -> None:
    """Bind this thread to its cores, which the processes that it starts inherit, and those to its GPU."""
    os.sched_setaffinity(0, cores)  # Linux: of the calling thread alone
    _here.gpu = gpu


def environment() -> dict[str, str]:
    """What a process that this thread starts is told of its GPU."""
    gpu = getattr(_here, "gpu", None)
    return {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}


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
