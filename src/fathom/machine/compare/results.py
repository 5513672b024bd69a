"""What a comparison holds: the contract of `fathom machine compare --json`. Fields are added, not renamed."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["does not carry over", "check again", "carries over"]
LOST, CHECK, KEPT = "does not carry over", "check again", "carries over"
ORDER: dict[str, int] = {KEPT: 0, CHECK: 1, LOST: 2}


class Side(msgspec.Struct, kw_only=True):
    """One of the two machines: what it was given as, and what it is in a few words."""

    name: str
    fingerprint: str
    summary: str
    gpus: int
    measured_ns: int | None = None


class Difference(msgspec.Struct, kw_only=True):
    """One thing that was compared; `severity` is `carries over` where both machines are alike in it."""

    id: str
    what: str
    a: str
    b: str
    severity: Severity
    why: str
    spoils: list[str]


class Kind(msgspec.Struct, kw_only=True):
    """A kind of result, whether it holds on the other machine, and the differences that decide it.

    `unknown`: what would have to be known too.
    """

    id: str
    what: str
    severity: Severity  # check again, too, where something that decides it is unknown
    because: list[str] = []
    unknown: list[str] = []


class Ratio(msgspec.Struct, kw_only=True):
    """A ceiling of both machines: `ratio` is b / a, from `low` to `high` by the quartiles of both.

    `verdict` is `same` where the two spreads overlap, else what B is: faster or slower.
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


class Comparison(msgspec.Struct, kw_only=True):
    """A result of `a` carried to `b`."""

    a: Side
    b: Side
    headline: str
    kinds: list[Kind]
    differences: list[Difference]
    ceilings: list[Ratio]
    abstained: list[Unknown]
