"""What is known about one kernel family: the JSON of `fathom kernel --json`. Fields are only ever added."""

from __future__ import annotations

from typing import Any

import msgspec

from fathom.analysis.results import Abstained


class Measure(msgspec.Struct):
    """One derived measure. `error` is a standard error, 0 where nothing was sampled."""

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
    advice: str = ""  # what it means that the value lies beyond what is healthy; empty where it does not
    note: str = ""


class Level(msgspec.Struct):
    """A level of the memory hierarchy, or a kind of arithmetic, as a ceiling over the family.

    `used` is the share (0 to 1) of the ceiling that was reached. `rate` and `ceiling` are B/s or FLOP/s, null
    where only the share is known; `intensity` is FLOP a byte of that level. `basis` says where both are from,
    `why` what a missing rate could not be told from.
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
    """Something that limits the family, in words; `weight` orders reasons, most telling first."""

    text: str
    measure: str
    weight: float


class Portrait(msgspec.Struct):
    """One kernel family on one device, per step where nothing else is said."""

    family: str
    entry: str
    rank: int
    device: str
    ms: float
    share: float  # of the step, 0 to 1
    launches: float | None
    time_us: dict[str, float]  # of a launch: mean, p10, p50, p90
    launch: dict[str, Any]  # grid, block, registers, shared_bytes, local_bytes
    occupancy: dict[str, Any] | None
    work: dict[str, Any]  # flops, bytes, flops_per_s, bytes_per_s, at_ceiling_ms, bound, abstained
    measures: list[Measure]
    counters: list[dict[str, Any]]  # rows of the table `counters`
    counted_as: str  # what the counters are about: family, pool or group; empty: there are none
    roofline: list[Level]
    bound: str  # what limits it most, in a word or two
    used: float | None  # the share of that, 0 to 1
    reasons: list[Reason]
    abstained: list[Abstained] = []
