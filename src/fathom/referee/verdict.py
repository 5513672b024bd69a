"""The result types of a proof: what `fathom prove --json` prints. Fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import msgspec

from fathom.data import load


class Reason(msgspec.Struct, frozen=True):
    """Why a candidate is refused: a code of `reasons.yaml`, and what was seen."""

    code: str
    detail: str = ""

    @property
    def says(self) -> str:
        """The code in words."""
        return codes()[self.code]


class Agreement(msgspec.Struct):
    """How near one part of the result is to the reference, over all calls that were compared.

    `relative_norm` is ‖x − r‖ / ‖r‖; `worst` the largest |xᵢ − rᵢ| over max(|rᵢ|, rms(r)). Both are the
    largest that was seen; `allowed_*` are the tolerances, see `compare.tolerance`.
    """

    place: str
    dtype: str
    calls: int
    relative_norm: float | None
    allowed_norm: float | None
    worst: float | None
    allowed_worst: float | None
    baseline_norm: float | None = None  # the baseline's own relative norm
    reduction: int | None = None


class Fraction(msgspec.Struct):
    """One side against what its work needs at the measured ceilings."""

    fraction: float
    bound: str  # the ceiling: "hbm", "matmul.bf16" …
    at_ceiling_ns: float


class Timing(msgspec.Struct):
    """One side's time a call, under one condition of the cache."""

    ns: float  # median over blocks
    blocks: list[float]  # each process's time
    samples: int
    discarded: dict[str, int] = {}  # reason → samples that were not counted
    cycles: float | None = None  # ns at the clock that was observed
    clock_mhz: float | None = None
    ceiling: Fraction | None = None


class Comparison(msgspec.Struct):
    """Both sides under one condition of the cache: "warm", "cold", or "" where it does not apply."""

    cache: str
    decision: str
    ratio: float | None  # candidate's time over baseline's
    interval: list[float] | None  # of 99 % confidence
    pairs: int
    settled: bool
    baseline: Timing
    candidate: Timing


class Verdict(msgspec.Struct):
    """What a proof found. `verdict` is faster, slower, same, ambiguous or refused."""

    verdict: str
    ratio: float | None
    interval: list[float] | None
    reasons: list[Reason]
    margin: float
    baseline: str = ""
    candidate: str = ""
    device: str = ""
    latency: str | None = None
    timings: list[Comparison] = []
    agreement: list[Agreement] = []
    reference: str = ""  # what the results were compared with
    excused: list[Reason] = []  # seen, and allowed by the pair
    shared: list[Reason] = []  # seen on both sides, so no reason to refuse one
    notes: list[str] = []
    work: dict[str, Any] = {}
    seconds: float = 0.0

    @property
    def refused(self) -> bool:
        """Whether the candidate was refused."""
        return self.verdict == "refused"

    def excuse(self, allow: Collection[str]) -> None:
        """Set apart the reasons that the pair allows; refuse for any other."""
        every = ordered(self.reasons)
        self.excused = [reason for reason in every if reason.code in allow]
        self.reasons = [reason for reason in every if reason.code not in allow]
        if self.reasons:
            self.verdict = "refused"

    def to_json(self) -> bytes:
        """The whole verdict; numbers are not rounded."""
        return msgspec.json.encode(self)


@cache
def codes() -> dict[str, str]:
    """Every reason's code and words, the most telling first."""
    rows = load(__package__, "reasons")
    return {row["code"]: row["says"] for row in rows}


def ordered(reasons: list[Reason]) -> list[Reason]:
    """One reason a code, the most telling first."""
    places = list(codes())
    first: dict[str, Reason] = {}
    for reason in reasons:
        first.setdefault(reason.code, reason)
    return sorted(first.values(), key=lambda reason: places.index(reason.code))
