"""Measure reads from the disk of a folder, bypassing the page cache (O_DIRECT) or else dropping it first.

Sequential reads are of large consecutive blocks; random reads are of aligned blocks about the size of a
training sample. Both keep several reads in flight, each in its own thread.
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
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.gauges.timer import sample
from fathom.machine import Ceiling, filesystem, free_bytes
from fathom.units import GIB, KIB, MIB

FILE_BYTES, SMALLEST = 4 * GIB, 64 * MIB
FREE_SHARE = 1 / 10  # share of the free space that the file may take
SEQUENTIAL = ((MIB, 1), (8 * MIB, 1), (8 * MIB, 4), (8 * MIB, 16))  # bytes per read, reads in flight
RANDOM = ((4 * KIB, 16), (128 * KIB, 1), (128 * KIB, 16), (128 * KIB, 64))
BATCH_BYTES = {"sequential": 256 * MIB, "random": 32 * MIB}  # bytes read in one repetition
BUDGET_S = 8.0
IN_MEMORY = ("tmpfs", "ramfs")
CACHED = "the page cache was dropped, not bypassed: this file system refuses O_DIRECT"


@dataclass(frozen=True)
class File:
    """A file of random bytes to read."""

    path: Path
    size: int
    direct: bool

    def open(self) -> int:
        """Open a descriptor that bypasses the page cache if possible."""
        return os.open(self.path, os.O_RDONLY | (os.O_DIRECT if self.direct else 0))

    @property
    def flags(self) -> tuple[str, ...]:
        return () if self.direct else (CACHED,)


def file_bytes(free: int | None, wanted: int) -> int:
    """Return the size in bytes of the file to write. Raises NotHereError if too little space is free."""
    wanted = max(wanted, SMALLEST)
    size = wanted if free is None else min(wanted, int(free * FREE_SHARE))
    if size < SMALLEST:
        raise NotHereError(f"too little free space: {(free or 0) / GIB:.1f} GiB")
    return size // MIB * MIB


@contextmanager
def random_file(folder: str, wanted: int) -> Iterator[File]:
    """Yield a file of random bytes in `folder`, flushed to the disk, and delete it afterwards.

    Raises NotHereError if the folder is missing, not writable, in memory, or has too little space.
    """
    place = Path(folder)
    if not place.is_dir():
        raise NotHereError(f"{folder} is not a folder")
    mount = filesystem(place.absolute())
    if mount and mount["type"] in IN_MEMORY:
        raise NotHereError(f"{folder} is in memory ({mount['type']}); choose another with --data")
    size = file_bytes(free_bytes(place), wanted)
    try:
        file = tempfile.NamedTemporaryFile(dir=place, prefix=".fathom-disk-")  # noqa: SIM115
    except OSError as error:
        raise NotHereError(f"{folder} is not writable ({error.strerror})") from None
    with file:
        _fill(file.fileno(), size)
        yield File(Path(file.name), size, takes_direct(Path(file.name)))


def _fill(descriptor: int, size: int) -> None:
    """Write random bytes, which a file system can neither compress nor deduplicate, and flush them."""
    source = np.random.default_rng()
    try:
        for _ in range(0, size, MIB):
            os.write(descriptor, source.bytes(MIB))
        os.fsync(descriptor)
    except OSError as error:
        raise NotHereError(f"the file could not be written ({error.strerror})") from None
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def takes_direct(path: Path) -> bool:
    """Return whether the file system supports O_DIRECT; some refuse it only at the first read."""
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
    """Return the offsets of `count` blocks: random ones, or consecutive ones from block `start`, wrapping."""
    blocks = size // block
    if kind == "random":
        return [random.randrange(blocks) * block for _ in range(count)]
    return [(start + i) % blocks * block for i in range(count)]


def _measure(kind: str, job: GaugeJob) -> Ceiling:
    ways = {"sequential": SEQUENTIAL, "random": RANDOM}[kind]
    with random_file(job.data, int(FILE_BYTES * job.pace)) as file:
        results = [_at(file, kind, block, depth, job) for block, depth in ways]
    small = 128 * KIB  # block size of the value for random reads; 4 KiB reads are only in the series
    worthy = [result for result in results if kind == "sequential" or result.at["block_bytes"] == small]
    return best(f"disk.read.{kind}", results, max(worthy, key=lambda result: result.rate))


def _at(file: File, kind: str, block: int, depth: int, job: GaugeJob) -> Measurement:
    count = max(depth, int(BATCH_BYTES[kind] * min(1.0, job.pace)) // block)
    if block < 128 * KIB:
        count = max(depth, count // 16)  # small reads would take many times longer
    at = {"block_bytes": block, "in_flight": depth, "file_bytes": file.size}
    with Readers(file, block, depth) as readers:
        run = partial(_batch, readers, kind, count)
        taken = sample(run, effort(job, BUDGET_S / len(RANDOM), sample_s=0.01))
    return Measurement(at, taken, block * count, flags=file.flags)


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
    """Threads that read a file's blocks, each with its own descriptor and aligned buffer."""

    def __init__(self, file: File, block: int, depth: int) -> None:
        self.file, self.block, self.done = file, block, 0
        self._pool = ThreadPoolExecutor(depth)
        self._buffers = [mmap.mmap(-1, block) for _ in range(depth)]  # page-aligned, as O_DIRECT requires
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
        """Read the blocks at `places`, distributed over the threads. Raises NotHereError on a short read."""
        depth = len(self._buffers)
        list(self._pool.map(self._share, range(depth), [places[i::depth] for i in range(depth)]))
        self.done += len(places)

    def _share(self, reader: int, places: list[int]) -> None:
        descriptor, buffers = self._descriptors[reader], [self._buffers[reader]]
        for place in places:
            if os.preadv(descriptor, buffers, place) != self.block:
                raise NotHereError("a read returned too few bytes")

    def forget_cache(self) -> None:
        """Drop the file from the page cache, if reads do not bypass it."""
        if not self.file.direct:
            os.posix_fadvise(self._descriptors[0], 0, 0, os.POSIX_FADV_DONTNEED)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    f"disk.read.{kind}": partial(_measure, kind) for kind in ("sequential", "random")
}
