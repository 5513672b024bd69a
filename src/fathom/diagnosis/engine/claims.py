"""Make claims disjoint, so that no two findings claim the same time of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from fathom.diagnosis.grouping import summed
from fathom.diagnosis.rules import Candidate, Claim

Row = tuple[str, str]  # entry, detail


class Sized(msgspec.Struct, frozen=True):
    """A candidate with its gain in milliseconds per step and the interval, None if not predicted.

    The gain shrinks where others save the same time; `alone` does not.
    """

    candidate: Candidate
    ms: float | None
    low: float | None = None
    high: float | None = None
    alone: float | None = None
    observed: bool = False  # measured in the running program
    predicted: float | None = None  # the gain predicted without the measurement
    step_ms: float | None = None  # mean step during the measurement

    @property
    def claimed(self) -> float:
        """Total milliseconds of the claims."""
        return sum(claim.ms for claim in self.candidate.claims)

    @property
    def free(self) -> bool:
        """Whether the candidate costs no time, or an unknown time."""
        return self.candidate.costless and self.ms is None

    @property
    def weight(self) -> float:
        """Sort key of candidates: the gain, or the claimed time if there is no gain."""
        return self.claimed if self.ms is None else self.ms

    def scaled(self, share: float) -> Sized:
        """Return a copy with the gain and its interval multiplied by `share`."""
        ms, low, high = (None if ms is None else ms * share for ms in (self.ms, self.low, self.high))
        return replace(self, ms=ms, low=low, high=high)

    def claiming(self, claims: list[Claim]) -> Sized:
        """Return a copy with these claims."""
        return replace(self, candidate=replace(self.candidate, claims=claims))


def disjoint(
    candidates: Iterable[Sized],
    ledger: Mapping[Row, float],
    least: float,
    clean: Mapping[Row, float] | None = None,
) -> list[Sized]:
    """Reduce claims until they sum to no more than each row of `ledger` (milliseconds).

    Specific causes claim before general ones, and causes without rows claim last; within each group, larger
    gains claim first. For example, a loop over small matmuls explains the time spent launching. A later
    candidate keeps what is left of its rows and the same share of its gain, which never exceeds its claims.
    Gains below `least` milliseconds are dropped, and of costless candidates only the gain. Gains are of the
    `clean` step, which has these rows, if it differs from `ledger`. The result is sorted by gain, largest
    first.
    """
    left, rates = dict(ledger), _rates(ledger, ledger if clean is None else clean)
    kept: list[Sized] = []
    places: list[tuple[bool, float, float, str]] = []
    for sized in sorted(candidates, key=lambda sized: (_turn(sized), *order(sized))):
        others = kept if sized.candidate.general else [o for o in kept if o.candidate.general]
        beyond = _beyond(sized, others, rates)
        settled = _settled(_spilled(beyond, left, rates), left)
        if settled.weight < least:
            if not sized.candidate.costless:
                continue
            settled = Sized(replace(sized.candidate, claims=[], changes=()), None)
        places.append(order(settled))
        kept.append(_within_gain(settled, rates))
        for claim in kept[-1].candidate.claims:
            left[claim.entry, claim.detail] -= claim.ms
    return [sized for _, sized in sorted(zip(places, kept, strict=True), key=itemgetter(0))]


def _rates(profiled: Mapping[Row, float], clean: Mapping[Row, float]) -> dict[Row, float]:
    """Return the time of each row in the clean step, over that in the profiled step."""
    return {row: max(clean.get(row, 0.0), 0.0) / ms for row, ms in profiled.items() if ms > 0}


def _moved(claims: Iterable[Claim], rates: Mapping[Row, float]) -> list[Claim]:
    """Return the same shares of the rows of the clean step."""
    moved = (replace(claim, ms=claim.ms * rates.get((claim.entry, claim.detail), 0.0)) for claim in claims)
    return [claim for claim in moved if claim.ms > 0]


def _within_gain(sized: Sized, rates: Mapping[Row, float]) -> Sized:
    """Leave to other causes what a replayed gain does not save, as where the host limits the step then."""
    claimed = sum(claim.ms for claim in _moved(sized.candidate.claims, rates))
    if not sized.candidate.changes or sized.observed or sized.ms is None or sized.ms >= claimed:
        return sized
    scaled = (Claim(c.entry, c.detail, sized.ms / claimed * c.ms) for c in sized.candidate.claims)
    return sized.claiming([claim for claim in scaled if claim.ms > 0])


def _turn(sized: Sized) -> int:
    """Return the candidate's turn: 0 for specific causes, 1 for general ones, 2 for causes without rows, and
    3 for causes without a known cost: their claims take no gain from others.
    """
    if sized.free:
        return 3
    return 1 if sized.candidate.general else 2 * (not sized.candidate.claims)


def in_clean(
    sized: Sized, profiled: Mapping[Row, float], clean: Mapping[Row, float], step_ms: float
) -> Sized:
    """Move claims to the rows of the clean step, and limit the gain to these rows.

    The claimed share of a profiled row is kept. Measured gains are not predictions and stay as they are.
    """
    moved = sized.claiming(_moved(sized.candidate.claims, _rates(profiled, clean)))
    if sized.ms is None or sized.observed:
        return moved
    touched = {claim.entry for claim in sized.candidate.claims} | set(sized.candidate.spill)
    room = sum(max(ms, 0.0) for (entry, _), ms in clean.items() if entry in touched)
    most = min(room, step_ms) if sized.candidate.changes and touched else step_ms
    within = min(most / sized.ms, 1.0) if sized.ms > 0 else 1.0
    high = None if sized.high is None else max(min(sized.high, step_ms), sized.ms * within)
    alone = None if sized.alone is None else min(sized.alone, most)
    return replace(moved.scaled(within), high=high, alone=alone)


def by_gain(sized: Sized) -> tuple[bool, float]:
    """Sort key: the largest gain first."""
    return sized.free, -sized.weight


def order(sized: Sized) -> tuple[bool, float, float, str]:
    """Sort key. If gains are equal, often because the host limits them, larger device claims come first."""
    return *by_gain(sized), -sized.claimed, sized.candidate.kind


def _beyond(sized: Sized, others: Iterable[Sized], rates: Mapping[Row, float]) -> Sized:
    """Return the gain beyond other candidates' gains from the same idle time, which is saved only once."""
    claims = (claim for other in others for claim in _moved(other.candidate.claims, rates))
    taken = sum(claim.ms for claim in claims if claim.entry in sized.candidate.spill)
    return sized.scaled(max(1.0 - taken / sized.ms, 0.0)) if taken and sized.ms else sized


def _spilled(sized: Sized, left: Mapping[Row, float], rates: Mapping[Row, float]) -> Sized:
    """If the gain exceeds the claims in the clean step, claim the difference from the `spill` rows in
    proportion.
    """
    rows = {row: ms for row, ms in left.items() if row[0] in sized.candidate.spill and ms > 0}
    total = sum(ms * rates.get(row, 0.0) for row, ms in rows.items())
    more = (sized.ms or 0.0) - sum(claim.ms for claim in _moved(sized.candidate.claims, rates))
    if more <= 0 or total <= 0:
        return sized
    spilled = (Claim(*row, min(more / total, 1.0) * ms) for row, ms in rows.items())
    return sized.claiming([*sized.candidate.claims, *spilled])


def _settled(sized: Sized, left: Mapping[Row, float]) -> Sized:
    """Limit the claims and the gain to the unclaimed part of the rows."""
    wanted = summed(((c.entry, c.detail), max(c.ms, 0.0)) for c in sized.candidate.claims)
    claims = [Claim(*row, min(ms, left.get(row, 0.0))) for row, ms in wanted.items()]
    claims = [claim for claim in claims if claim.ms > 0]
    total = sum(wanted.values())
    kept = sum(claim.ms for claim in claims)
    settled = sized.claiming(claims).scaled(kept / total if total > 0 else 1.0)
    if settled.ms is None or settled.low is None or not sized.candidate.changes or sized.observed:
        return settled
    return replace(settled, high=settled.high or settled.ms).scaled(
        min(1.0, kept / settled.ms) if settled.ms > 0 else 1.0
    )
