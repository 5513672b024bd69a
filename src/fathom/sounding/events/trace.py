"""The result of importing one process: its tables, its origin, and the problems of the file."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from fathom.machine.model import Gpu
from fathom.sounding.manifest import Facts, Problem
from fathom.sounding.schema import empty

_MARKS = {"k": pl.Int64, "ns": pl.Int64, "thread": pl.Int64}


def is_pid(value: object) -> bool:
    """Return whether a value of a file can be the number of a process."""
    return type(value) is int and 0 <= value < 2**31


def listed_gpu(
    index: int,
    name: str,
    major: int | None = None,
    minor: int | None = None,
    multiprocessors: int | None = None,
    memory_bytes: int | None = None,
) -> Gpu:
    """Return a GPU of a trace as an entry of the machine's inventory, without what the trace lacks."""
    gpu: Gpu = {"index": index, "name": name}
    if major:
        gpu["compute_capability"] = f"{major}.{minor or 0}"
    if multiprocessors:
        gpu["multiprocessors"] = multiprocessors
    if memory_bytes:
        gpu["memory_bytes"] = memory_bytes
    return gpu


@dataclass
class Origin:
    """The process and machine that a trace was recorded on; None or empty if the file does not name them."""

    pid: int | None
    rank: int | None
    world: int | None
    host: str | None
    devices: dict[int, str]  # names of the GPUs that did work, by index
    gpus: list[Gpu]  # GPUs as entries of a machine's inventory
    versions: dict[str, str]


@dataclass
class Trace:
    """The contents of a trace.

    `tables` are `ops`, `launches` and `kernels`. `marks` are Fathom's annotations (k, ns, thread), which are
    not in `ops`. `steps` are the profiler's steps, and `memory` the allocator's events. `samples` are those
    of hardware counters, and `stacks` are Python frames in pauses between ops and calls. `facts` are for the
    rank in the manifest. `abstained` lists what the file lacks.
    """

    tables: dict[str, pl.DataFrame]
    origin: Origin
    problems: list[Problem]
    marks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_MARKS))
    steps: pl.DataFrame = field(default_factory=lambda: empty("steps"))
    memory: pl.DataFrame = field(default_factory=lambda: empty("memory"))
    samples: pl.DataFrame = field(default_factory=lambda: empty("samples"))
    facts: Facts = field(default_factory=dict)
    abstained: list[dict[str, str]] = field(default_factory=list)
    stacks: pl.DataFrame = field(default_factory=lambda: empty("stacks"))
