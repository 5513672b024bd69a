"""The result types of a proof, printed by `fathom prove --json`. Fields are added, never renamed."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import msgspec

from fathom.data import load

DOUBT = 0.05  # probability that calls with the fault rate of a verdict all agree


class Refusal(msgspec.Struct, frozen=True):
    """A reason to refuse a candidate: a code from `reasons.yaml`, and the observation."""

    code: str
    detail: str = ""

    @property
    def says(self) -> str:
        """The meaning of the code in words."""
        return codes()[self.code]


class Agreement(msgspec.Struct):
    """Deviation of one part of the result from the reference, over all compared calls.

    `relative_norm` is ‖x − r‖ / ‖r‖; `worst` is the largest |xᵢ − rᵢ| / max(|rᵢ|, rms(r)). Both are maxima
    over the calls; `allowed_*` are the tolerances, see `compare.tolerance`.
    """

    place: str
    dtype: str
    calls: int
    relative_norm: float | None = None
    allowed_norm: float | None = None
    worst: float | None = None
    allowed_worst: float | None = None
    baseline_norm: float | None = None  # the baseline's own relative norm
    reduction: int | None = None


class Fraction(msgspec.Struct):
    """The time that one side's work needs at the measured ceilings, as a fraction of its actual time."""

    fraction: float
    bound: str  # the ceiling: "hbm", "matmul.bf16" …
    at_ceiling_ns: float


class Timing(msgspec.Struct):
    """One side's time per call under one condition of the cache."""

    ns: float  # median over blocks
    blocks: list[float]  # each process's time
    samples: int
    discarded: dict[str, int] = {}  # reason → number of discarded samples
    cycles: float | None = None  # `ns` in cycles of the observed clock
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
    """The result of a proof. `verdict` is faster, slower, same, inconclusive or refused."""

    verdict: str
    ratio: float | None
    interval: list[float] | None
    reasons: list[Refusal]
    margin: float
    baseline: str = ""
    candidate: str = ""
    device: str = ""
    latency: str | None = None
    timings: list[Comparison] = []
    agreement: list[Agreement] = []
    reference: str = ""  # the source of the reference results
    excused: list[Refusal] = []  # observed, but allowed by the pair
    shared: list[Refusal] = []  # observed on both sides, so not a reason to refuse
    notes: list[str] = []
    work: dict[str, object] = {}
    seconds: float = 0.0
    compared: int = 0  # calls
    fault_rate: float | None = None  # bound on the share of wrong calls, if all that were compared agree

    @property
    def refused(self) -> bool:
        """Whether the candidate was refused."""
        return self.verdict == "refused"

    def excuse(self, allow: Collection[str]) -> None:
        """Move the reasons that the pair allows to `excused`; refuse if others are left."""
        every = ordered(self.reasons)
        self.excused = [reason for reason in every if reason.code in allow]
        self.reasons = [reason for reason in every if reason.code not in allow]
        if self.reasons:
            self.verdict = "refused"

    def agreed(self, calls: int) -> None:
        """Note that so many calls were compared, and the share of wrong ones that they exclude at 95 %."""
        self.compared = calls
        if calls and not self.reasons and not self.excused:
            self.fault_rate = 1 - DOUBT ** (1 / calls)

    def to_json(self) -> bytes:
        """Encode the verdict as JSON, without rounding numbers."""
        return msgspec.json.encode(self)


@cache
def codes() -> dict[str, str]:
    """Return the text of every reason by code, most specific first."""
    rows = load(__package__, "reasons")
    return {row["code"]: row["says"] for row in rows}


def ordered(reasons: list[Refusal]) -> list[Refusal]:
    """Return one reason per code, most specific first."""
    places = list(codes())
    first: dict[str, Refusal] = {}
    for reason in reasons:
        first.setdefault(reason.code, reason)
    return sorted(first.values(), key=lambda reason: places.index(reason.code))
