"""Result types for one kernel family: the JSON of `fathom kernel --json`. Fields are added, never removed."""

from __future__ import annotations

from typing import TypedDict

import msgspec

from fathom.analysis.results import Abstained, device_label


class Measure(msgspec.Struct):
    """One derived measure. `error` is a standard error, 0 if nothing was sampled."""

    name: str
    title: str
    group: str
    value: float
    unit: str
    error: float
    samples: int
    source: str
    meaning: str
    resource: bool = False
    advice: str = ""  # the meaning of a value outside the healthy range; "" inside it
    note: str = ""


class Level(msgspec.Struct):
    """A level of the memory hierarchy, or a kind of arithmetic, as a ceiling of the family.

    `used` is the achieved share (0 to 1) of the ceiling. `rate` and `ceiling` are in B/s or FLOP/s, null if
    only the share is known. `intensity` is FLOP per byte of that level. `basis` names the source of these
    figures, `why` the reason for a missing rate.
    """

    name: str
    kind: str  # memory, arithmetic
    used: float
    error: float
    rate: float | None
    ceiling: float | None
    unit: str
    intensity: float | None
    basis: str
    why: str = ""


class Reason(msgspec.Struct):
    """A reason for the limit of the family, as a sentence; reasons with more `weight` come first."""

    text: str
    measure: str
    weight: float


class UsualLaunch(msgspec.Struct):
    """The most common attributes of a family's launches; `streams` is the number of streams that they use."""

    grid: str | None
    block: str | None
    threads: int | None
    registers: int | None
    shared_bytes: int | None
    local_bytes: int | None
    streams: int


class Occupancy(msgspec.Struct):
    """Blocks and warps per multiprocessor, and the warps as a `share` (0 to 1) of the most it can hold.

    `limiters` prevent one more block: registers, shared memory, blocks, warps, cluster. `next_at` gives the
    registers per thread and the shared memory per block with which one more block would fit.
    """

    blocks: int
    warps: int
    share: float
    limiters: list[str]
    next_at: dict[str, int]


class FamilyWork(msgspec.Struct):
    """The work of a family per step, and per launch of mean length; None if unknown (see `abstained`)."""

    flops: float | None
    bytes: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    flops_a_launch: float | None
    bytes_a_launch: float | None
    at_ceiling_ms: float | None
    bound: str
    unit: str | None
    abstained: str
    divided: bool = False  # its ops launch several kernels: each has a share of the work, by time


class CounterRow(TypedDict):
    """A row of the table `counters`."""

    device: int
    family: str
    counter: str
    value: float
    unit: str | None
    samples: int
    error: float | None
    source: str


class Portrait(msgspec.Struct):
    """One kernel family on one device; figures are per step unless they say otherwise."""

    family: str
    entry: str
    rank: int
    device: str
    ms: float
    share: float  # of the step, 0 to 1
    launches: float | None
    time_us: dict[str, float]  # of a launch: mean, p10, p50, p90
    launch: UsualLaunch
    occupancy: Occupancy | None
    work: FamilyWork
    measures: list[Measure]
    counters: list[CounterRow]
    counted_as: str  # the family, pool or group that the counters describe; "" without counters
    roofline: list[Level]
    bound: str  # its tightest limit, in a word or two
    used: float | None  # the share of that limit in use, 0 to 1
    reasons: list[Reason]
    abstained: list[Abstained] = []
    device_name: str = ""

    @property
    def label(self) -> str:
        """The name of the device for people."""
        return device_label(self.device, self.device_name)
