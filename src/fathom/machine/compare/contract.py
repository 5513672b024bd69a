"""The contract of `fathom machine compare --json`. Fields are added, never renamed."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["does not carry over", "check again", "carries over"]
ORDER: dict[Severity, int] = {"carries over": 0, "check again": 1, "does not carry over": 2}
KEPT, CHECK, LOST = ORDER


class ComparedMachine(msgspec.Struct, kw_only=True):
    """One of the two machines: the name it was given by, and a summary."""

    name: str
    fingerprint: str
    summary: str
    gpus: int
    measured_ns: int | None = None


class Difference(msgspec.Struct, kw_only=True):
    """One compared property; `severity` is `carries over` if both machines are alike."""

    id: str
    what: str
    a: str
    b: str
    severity: Severity
    why: str
    spoils: list[str]


class ResultKind(msgspec.Struct, kw_only=True):
    """A kind of result, whether it carries over, and the differences that decide.

    `unknown` lists the properties that would also have to be known.
    """

    id: str
    what: str
    severity: Severity  # also "check again" if a deciding property is unknown
    because: list[str] = []
    unknown: list[str] = []


class CeilingRatio(msgspec.Struct, kw_only=True):
    """A ceiling of both machines: `ratio` is b / a, from `low` to `high` by the quartiles of both.

    `verdict` is `same` if the two spreads overlap, else `faster` or `slower` for B.
    """

    id: str
    unit: str
    a: float
    b: float
    ratio: float
    low: float
    high: float
    verdict: Literal["same", "faster", "slower"]


class Unknown(msgspec.Struct, kw_only=True):
    """Something that could not be compared, and why."""

    what: str
    why: str


class MachineComparison(msgspec.Struct, kw_only=True):
    """A comparison of `a`, where a result was measured, with `b`."""

    a: ComparedMachine
    b: ComparedMachine
    headline: str
    kinds: list[ResultKind]
    differences: list[Difference]
    ceilings: list[CeilingRatio]
    abstained: list[Unknown]
    settings: list[ResultKind] = []  # of a settings file: what has the value's name
