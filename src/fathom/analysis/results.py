"""The result types: what `fathom report --json` prints. Fields are added, never renamed or dropped."""

from __future__ import annotations

from typing import Any

import msgspec


class Step(msgspec.Struct):
    """The repeating step. `clean_ms` is null where nothing measured the undisturbed program."""

    clean_ms: float | None  # median of the clean phase
    timeline_ms: float | None  # mean of the used windows, which the ledger sums to
    ci_ms: list[float] | None  # 95 % bootstrap interval of clean_ms (of timeline_ms where clean is null)
    n: int  # steps behind ci_ms
    kind: str
    source: str = ""  # what the steps were counted by
    clean_mean_ms: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None


class Window(msgspec.Struct):
    """[start_ns, end_ns) between two device boundaries; only used ones enter the means."""

    start_ns: int
    end_ns: int
    kind: str
    used: bool
    step: int | None = None
    why_not: str = ""


class Entry(msgspec.Struct):
    """One row of the ledger: mean over the used windows. `ns` is the exact sum over them, in nanoseconds."""

    entry: str
    detail: str
    ms: float
    at_ceiling_ms: float | None = None
    ns: int = 0
    clean_ms: float | None = None  # after the observer's share was taken off host-caused idle
    count: float | None = None  # pieces of work a step
    flops: float | None = None  # algorithmic, a step
    bytes: float | None = None  # compulsory, a step
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    abstained: str = ""  # why flops or bytes are null


class Device(msgspec.Struct):
    """One device's account of a step."""

    rank: int
    device: str  # "cuda:0", "cpu"
    windows: list[Window]
    total_ms: float | None
    ledger: list[Entry]
    observer_ms: float | None
    name: str = ""
    carried_in_ms: float | None = None  # work of other streams that began before the window
    carried_out_ms: float | None = None


class SlowStep(msgspec.Struct):
    """A step that was recorded because it was slow, with its own ledger."""

    rank: int
    step: int
    device: str
    ms: float
    ledger: list[Entry]


class Abstained(msgspec.Struct):
    """What could not be looked at, and why."""

    what: str
    why: str


class Integrity(msgspec.Struct):
    """Whether the recording can be trusted."""

    ok: bool
    problems: list[dict[str, Any]]


class Examination(msgspec.Struct):
    """Everything that Fathom has to say about one sounding."""

    step: Step
    devices: list[Device]
    integrity: Integrity
    input: dict[str, Any] | None
    memory: dict[str, Any] | None
    energy: dict[str, Any] | None
    findings: list[dict[str, Any]] = []
    slow: list[SlowStep] = []
    abstained: list[Abstained] = []
    sounding: dict[str, Any] = {}  # name, command, how it ended, versions, machine in short
