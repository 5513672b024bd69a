"""Reading the disk below a folder, with the page cache bypassed (O_DIRECT), or emptied where that is refused.

Sequential: large blocks one after another; random: blocks of about a sample's size, aligned, anywhere in the
file. Both with several reads in flight, each in a thread of its own.
"""

from __future__ import annotations

import mmap
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from fathom.gauges.gpu import effort
from fathom.gauges.job import Job
from fathom.gauges.timer import sample
from fathom.gauges.trials import NotHereError, Trial, best
from fathom.machine import Ceiling, disks, host
from fathom.units import GIB, KIB, MIB

FILE_BYTES, SMALLEST = 4 * GIB, 64 * MIB
FREE_SHARE = 1 / 10  # of the space left that the file may take
SEQUENTIAL = ((MIB, 1), (8 * MIB, 1), (8 * MIB, 4), (8 * MIB, 16))  # bytes a read, reads in flight
RANDOM = ((4 * KIB, 16), (128 * KIB, 1), (128 * KIB, 16), (128 * KIB, 64))
BATCH_BYTES = {"sequential": 256 * MIB, "random": 32 * MIB}  # one repetition
BUDGET_S = 8.0
IN_MEMORY = ("tmpfs", "ramfs")
CACHED = "the page cache was emptied, not bypassed: this file system refuses O_DIRECT"


@dataclass(frozen=True)
class File:
    """A file of random bytes to read."""

    path: Path
    size: int
    direct: bool

    def open(self) -> int:
        """A descriptor that reads past the page cache where that is possible."""
        return os.open(self.path, os.O_RDONLY | (os.O_DIRECT if self.direct else 0))

    @property
    def flags(self) -> tuple[str, ...]:
        return () if self.direct else (CACHED,)


def file_bytes(free: int | None, wanted: int) -> int:
    """How large a file may be. Raises NotHereError where there is too little space."""
    wanted = max(wanted, SMALLEST)
    size = wanted if free is None else min(wanted, int(free * FREE_SHARE))
    if size < SMALLEST:
        raise NotHereError(f"too little space is free: {(free or 0) / GIB:.1f} GiB")
    return size // MIB * MIB


@contextmanager
def random_file(folder: str, wanted: int) -> Iterator[File]:
    """A file of random bytes that is on the disk, and gone afterwards. Raises NotHereError."""
    place = Path(folder)
    if not place.is_dir():
        raise NotHereError(f"{folder} is no folder")
    mount = disks.filesystem(place.absolute())
    if mount and mount["type"] in IN_MEMORY:
        raise NotHereError(f"{folder} lies in memory ({mount['type']}); name another with --data")
    size = file_bytes(host.free_bytes(place), wanted)
    try:
        file = tempfile.NamedTemporaryFile(dir=place, prefix=".fathom-disk-")  # noqa: SIM115
    except OSError as error:
        raise NotHereError(f"no file can be written in {folder} ({error.strerror})") from None
    with file:
        _fill(file.fileno(), size)
        yield File(Path(file.name), size, takes_direct(Path(file.name)))


def _fill(descriptor: int, size: int) -> None:
    """Write random bytes: a file system that compresses or deduplicates must not gain by it."""
    source = np.random.default_rng()
    try:
        for _ in range(0, size, MIB):
            os.write(descriptor, source.bytes(MIB))
        os.fsync(descriptor)
    except OSError as error:
        raise NotHereError(f"the file could not be written ({error.strerror})") from None
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def takes_direct(path: Path) -> bool:
    """Whether the file system reads past the page cache; some only refuse at the read."""
    if not hasattr(os, "O_DIRECT"):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, MIB) as buffer:
            return os.preadv(descriptor, [buffer], 0) == MIB
    except OSError:
        return False
    finally:
        os.close(descriptor)


def offsets(kind: str, size: int, block: int, count: int, start: int) -> list[int]:
    """Where `count` blocks are read: one after another from block `start` on and round, or anywhere."""
    blocks = size // block
    if kind == "random":
        return [random.randrange(blocks) * block for _ in range(count)]
    return [(start + i) % blocks * block for i in range(count)]


def _measure(kind: str, job: Job) -> Ceiling:
    ways = {"sequential": SEQUENTIAL, "random": RANDOM}[kind]
    with random_file(job.data, int(FILE_BYTES * job.pace)) as file:
        trials = [_at(file, kind, block, depth, job) for block, depth in ways]
    small = 128 * KIB  # what the value of random reads is for; four-kilobyte ones stand in the series
    series = best(f"disk.read.{kind}", trials).series
    worthy = [trial for trial in trials if kind == "sequential" or trial.at["block_bytes"] == small]
    top = best(f"disk.read.{kind}", worthy)
    return Ceiling(**{**top.__dict__, "series": series})


def _at(file: File, kind: str, block: int, depth: int, job: Job) -> Trial:
    count = max(depth, int(BATCH_BYTES[kind] * min(1.0, job.pace)) // block)
    if block < 128 * KIB:
        count = max(depth, count // 16)  # or it would take as many times longer
    at = {"block_bytes": block, "in_flight": depth, "file_bytes": file.size}
    with Readers(file, block, depth) as readers:
        run = partial(_batch, readers, kind, count)
        taken = sample(run, effort(job, BUDGET_S / len(RANDOM), sample_s=0.01))
    return Trial(at, taken, block * count, flags=file.flags)


def _batch(readers: Readers, kind: str, count: int, repetitions: int) -> float:
    total = 0.0
    for _ in range(repetitions):
        readers.forget_cache()
        places = offsets(kind, readers.file.size, readers.block, count, readers.done)
        started = perf_counter()
        readers.read(places)
        total += perf_counter() - started
    return total


class Readers:
    """Threads that read a file's blocks, each with a descriptor and an aligned buffer of its own."""

    def __init__(self, file: File, block: int, depth: int) -> None:
        self.file, self.block, self.done = file, block, 0
        self._pool = ThreadPoolExecutor(depth)
        self._buffers = [mmap.mmap(-1, block) for _ in range(depth)]  # aligned to a page, as O_DIRECT asks
        self._descriptors = [file.open() for _ in range(depth)]

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for descriptor in self._descriptors:
            os.close(descriptor)
        for buffer in self._buffers:
            buffer.close()

    def read(self, places: list[int]) -> None:
        """Read the blocks at `places`, shared out to the threads. Raises NotHereError for a short read."""
        depth = len(self._buffers)
        list(self._pool.map(self._share, range(depth), [places[i::depth] for i in range(depth)]))
        self.done += len(places)

    def _share(self, reader: int, places: list[int]) -> None:
        descriptor, buffers = self._descriptors[reader], [self._buffers[reader]]
        for place in places:
            if os.preadv(descriptor, buffers, place) != self.block:
                raise NotHereError("a read came back short")

    def forget_cache(self) -> None:
        """Where the page cache could not be bypassed: drop the file from it."""
        if not self.file.direct:
            os.posix_fadvise(self._descriptors[0], 0, 0, os.POSIX_FADV_DONTNEED)


GAUGES: dict[str, Callable[[Job], Ceiling]] = {
    f"disk.read.{kind}": partial(_measure, kind) for kind in ("sequential", "random")
}
