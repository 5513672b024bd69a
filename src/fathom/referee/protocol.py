"""The messages between a proof and the processes of its sides: JSON objects, by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class Spec(TypedDict, total=False):
    """A process to start: one side, or one rank that runs both sides. Functions are given by address.

    A side has a `target`; ranks have a `device` and the forms `plain`, `tuned` and `reference`. `preload` are
    modules to import, `wanted` the keys of functions that it must not call. `upcast` computes in float64.
    """

    inputs: str
    variants: str | None
    work: str | None
    target: str
    device: str
    preload: Sequence[str]
    upcast: bool
    wanted: dict[str, list[str]]
    plain: str
    tuned: str
    reference: str | None


class Described(TypedDict, total=False):
    """The form of a value, where it has one: `stride` in elements. `deferred` values compute when read."""

    kind: str
    type: str
    dtype: str
    shape: list[int]
    stride: list[int]
    device: str
    deferred: bool


class Form(Described, total=False):
    """A value of a result: its place there, and where its bytes are in the file."""

    place: str
    offset: int
    bytes: int


class SavedResult(TypedDict, total=False):
    """A result in a file, and the hash of its inputs."""

    leaves: list[Form]
    mutated: list[str]
    aliases: list[str]
    inputs: str


class SampleTimes(TypedDict, total=False):
    """One sample. `copied_ns` is the time to copy its last result; `late` the code of a refusal.

    `queued` is False if the host could not keep ahead of the device.
    """

    ns: float
    copied_ns: int
    host_ns: int
    queued: bool
    preempted: int
    late: str | None


class WorkRecord(TypedDict, total=False):
    """The work of one call, `given` by the pair or `derived`; `unit` is the ceiling of its arithmetic."""

    flops: float | None
    bytes: float | None
    unit: str | None
    source: str


class Failure(TypedDict):
    """An exception in a side: `where` is the file and line."""

    type: str
    text: str
    where: str
    bad_input: bool
