"""The manifest of a sounding: command, machine, ranks and facts about them, phases, versions, problems."""

from __future__ import annotations

from typing import Any

import msgspec

from fathom.sounding.schema import FORMAT
from fathom.version import VERSION

COMPILER, LOADERS, TRACED = "compiler", "loaders", "python_calls"  # keys of `Rank.facts`

Facts = dict[str, Any]  # from the probe: Python version, compiler, loaders, counter groups ...


class Problem(msgspec.Struct, omit_defaults=True):
    """Something damaged or missing in the recording. Damaged records are left out of every sum."""

    what: str  # a short id: "bad-duration", "stream-overlap", "graph-without-kernels", ...
    text: str  # one sentence for people
    count: int = 1
    rank: int | None = None
    spoils: list[str] = []  # tables whose sums may be wrong because of it


class Rank(msgspec.Struct, omit_defaults=True):
    """One process of the program that ran steps."""

    rank: int
    pid: int | None = None
    host: str | None = None
    world: int | None = None
    devices: dict[int, str] = {}  # device index to name
    step_on: str | None = None  # the source of its steps: `source` in the table of steps
    clock_error_ns: int | None = None  # error of the offset between the host's and the profiler's clock
    facts: Facts = {}


class Phase(msgspec.Struct, omit_defaults=True):
    """An uninterrupted stretch of one phase in one rank; `burst` is the column `burst` of the tables."""

    rank: int
    phase: str
    burst: int
    start_ns: int
    end_ns: int
    steps: int = 0


class Manifest(msgspec.Struct):
    """Everything about a sounding that is not a table. Readers check `format` before they read the rest."""

    format: int = FORMAT
    fathom: str = VERSION
    name: str = ""
    made_by: str = "run"  # run, record, import
    created_ns: int = 0
    command: list[str] = []
    origin: str | None = None  # the recorder's signature of the command
    exit_status: int | None = None
    error: str | None = None  # the exception that ended the program
    ended: str = "finished"  # finished, exited, exception, crashed, interrupted, killed, stopped, no-steps
    ranks: list[Rank] = []
    phases: list[Phase] = []
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    settings: dict[str, str] = {}  # that `fathom run --settings` applied: value by knob
    parent: str | None = None
    problems: list[Problem] = []
    abstained: list[dict[str, str]] = []  # {"what", "why"}
    ended_ns: int | None = None  # end of the program; null if unknown
    checksums: dict[str, int] = {}  # CRC-32 by file, like rank-0/steps.parquet


class Place(msgspec.Struct, omit_defaults=True):
    """A frame at which Dynamo broke the graph, or that it failed to compile; null fields are unknown."""

    file: str | None = None
    line: int | None = None  # line of the graph break; for a frame that was given up, its first line
    function: str | None = None
    why: str | None = None  # Dynamo's reason, on one line
    at: tuple[str, int] | None = None  # for a frame that was given up: file and line of the failure


class Recompiled(Place):
    """A frame that Dynamo compiled again, because a guard of its earlier versions failed (`why`)."""

    times: int = 0  # recompilations
    limited: bool = False  # it reached the limit: other values run uncompiled


class Counted(msgspec.Struct):
    """Dynamo's counts for one process."""

    frames: int  # frames that Dynamo tried to compile
    graphs: int = 0  # distinct graphs that it compiled
    reasons: list[tuple[str, int]] = []  # reasons for graph breaks and frames given up, with counts
    breaks: list[Place] = []  # graph breaks, after which the rest of the frame is compiled separately
    given_up: list[Place] = []  # frames without a compiled version
    recompiled: list[Recompiled] = []


class LoaderFacts(msgspec.Struct, omit_defaults=True):
    """One data loader; null fields are unknown.

    `context` is the start method of its workers (fork, spawn, forkserver). `batches` is the number of batches
    in an epoch, null for iterable datasets. `tensors` and `bytes` are the number of tensors and their total
    size in its first batch. `threads` is torch's number of threads in the training process. `items` is true
    if the dataset fetches whole batches (`__getitems__`). `source` and `collate_source` are the first lines
    of the program's dataset and collate function, as file:line.
    """

    loader: int
    dataset: str = ""
    iterable: bool = False
    items: bool = False
    workers: int = 0
    context: str | None = None
    batch_size: int | None = None
    batches: int | None = None
    tensors: int | None = None
    bytes: int | None = None
    threads: int | None = None
    source: str | None = None
    collate_source: str | None = None


class Sampling(msgspec.Struct):
    """A burst of counter samples, with the fields that analyses read."""

    burst: int | None = None
    device: int | None = None
    clock_error_ns: float | None = None


class Folding(msgspec.Struct):
    """The result of folding samples onto kernels, without the fields that no analysis reads again."""

    version: int | None = None
    abstained: list[dict[str, str]] = []
    alignment: list[dict[str, object]] = []


class HotSpot(msgspec.Struct):
    """An instruction or a source line of a kernel family that ncu sampled often."""

    family: str
    level: str  # sass, source
    where: str
    text: str
    samples: float
    share: float  # of the family's samples
    reasons: dict[str, float]  # samples by reason of the stall
    waste: dict[str, float]  # wasted work by kind


class RankFacts(msgspec.Struct):
    """The shape of `Rank.facts`, which readers require; further facts are allowed."""

    python: str | None = None
    bursts: int = 0
    timeline: str | None = None
    compiler: Counted | None = None
    loaders: list[LoaderFacts] = []
    counter_groups: list[list[str]] = []
    sampling: list[Sampling] = []
    folding: Folding | None = None
    pools: list[dict[str, object]] = []
    hot_spots: list[HotSpot] = []
    stacks: dict[str, float | None] = {}
    python_calls: int = 0  # that an imported trace records
