"""Findings that share no nanosecond of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from fathom.diagnosis.rules import Candidate, Claim

Row = tuple[str, str]  # entry, detail


class Sized(msgspec.Struct, frozen=True):
    """A candidate with its gain in milliseconds a step and the interval of it; None: not predicted."""

    candidate: Candidate
    ms: float | None
    low: float | None = None
    high: float | None = None
    observed: bool = False  # in the running program
    predicted: float | None = None  # what it would be otherwise
    step_ms: float | None = None  # the mean step that it was observed in

    @property
    def weight(self) -> float:
        """What it is ordered by: its gain, else what it claims."""
        return sum(c.ms for c in self.candidate.claims) if self.ms is None else self.ms


def disjoint(found: Iterable[Sized], ledger: Mapping[Row, float], least: float) -> list[Sized]:
    """The findings with claims that sum to no more than each row of `ledger` (milliseconds) holds.

    Larger gains claim first, general causes after those with rows of their own, and causes without rows last:
    a loop over small products is why launching takes the time. A later one keeps what is left of its rows,
    and that share of its gain, which never exceeds what it claims. Gains below `least` milliseconds are
    dropped. Largest first.
    """
    left = dict(ledger)
    kept: list[Sized] = []
    for one in sorted(found, key=lambda one: (_turn(one.candidate), *order(one))):
        beyond = _beyond(one, kept if one.candidate.general else [o for o in kept if o.candidate.general])
        settled = _settled(_spilled(beyond, left), left)
        if settled.weight < least and not one.candidate.costless:
            continue
        for claim in settled.candidate.claims:
            left[claim.entry, claim.detail] -= claim.ms
        kept.append(settled)
    return sorted(kept, key=order)


def _turn(one: Candidate) -> int:
    """Causes with rows of their own claim first, then general ones, then those without rows."""
    return 1 if one.general else 2 * (not one.claims)


def in_clean(one: Sized, profiled: Mapping[Row, float], clean: Mapping[Row, float], step_ms: float) -> Sized:
    """With its claims on the clean step's rows, and a gain that these rows hold.

    A row keeps the share that was claimed of the profiled one. What was observed is no prediction, and stays.
    """
    claims = [
        Claim(claim.entry, claim.detail, claim.ms / profiled[claim.entry, claim.detail] * ms)
        for claim in one.candidate.claims
        if (ms := clean.get((claim.entry, claim.detail), 0.0)) > 0
    ]
    found = replace(one, candidate=replace(one.candidate, claims=claims))
    if one.ms is None or one.observed:
        return found
    touched = {claim.entry for claim in one.candidate.claims} | set(one.candidate.spill)
    held = sum(max(ms, 0.0) for (entry, _), ms in clean.items() if entry in touched)
    most = min(held, step_ms) if one.candidate.changes and touched else step_ms
    within = min(most / one.ms, 1.0) if one.ms > 0 else 1.0
    high = None if one.high is None else max(min(one.high, step_ms), one.ms * within)
    return replace(found, ms=one.ms * within, low=None if one.low is None else one.low * within, high=high)


def order(one: Sized) -> tuple[bool, float, float, str]:
    """Of equal gains, which the host limits as a rule, the one that takes more off the device comes first."""
    claimed = sum(claim.ms for claim in one.candidate.claims)
    return one.candidate.costless, -one.weight, -claimed, one.candidate.kind


def _beyond(one: Sized, others: Iterable[Sized]) -> Sized:
    """What it gains beyond others that take the same idle time, which can be saved but once."""
    entries = one.candidate.spill
    taken = sum(c.ms for other in others for c in other.candidate.claims if c.entry in entries)
    if not taken or not one.ms:
        return one
    share = max(1.0 - taken / one.ms, 0.0)
    ms, low, high = (None if ms is None else ms * share for ms in (one.ms, one.low, one.high))
    return replace(one, ms=ms, low=low, high=high)


def _spilled(one: Sized, left: Mapping[Row, float]) -> Sized:
    """With claims of its `spill` rows, each in proportion, for what its gain exceeds its own claims by."""
    rows = {row: ms for row, ms in left.items() if row[0] in one.candidate.spill and ms > 0}
    total = sum(rows.values())
    more = min((one.ms or 0.0) - sum(claim.ms for claim in one.candidate.claims), total)
    if more <= 0:
        return one
    claims = [*one.candidate.claims, *(Claim(*row, more * ms / total) for row, ms in rows.items())]
    return replace(one, candidate=replace(one.candidate, claims=claims))


def _settled(one: Sized, left: Mapping[Row, float]) -> Sized:
    """With what is left of its rows."""
    wanted = _merged(one.candidate.claims)
    claims = [Claim(*row, min(ms, left.get(row, 0.0))) for row, ms in wanted.items()]
    claims = [claim for claim in claims if claim.ms > 0]
    total = sum(wanted.values())
    share = sum(claim.ms for claim in claims) / total if total > 0 else 1.0
    ms, low, high = (None if ms is None else ms * share for ms in (one.ms, one.low, one.high))
    kept = sum(claim.ms for claim in claims)
    if ms is not None and low is not None and one.candidate.changes and not one.observed:
        within = min(1.0, kept / ms) if ms > 0 else 1.0
        ms, low, high = ms * within, low * within, (high or ms) * within
    mended = replace(one.candidate, claims=claims)
    return replace(one, candidate=mended, ms=ms, low=low, high=high)


def _merged(claims: Iterable[Claim]) -> dict[Row, float]:
    rows: dict[Row, float] = {}
    for claim in claims:
        rows[claim.entry, claim.detail] = rows.get((claim.entry, claim.detail), 0.0) + max(claim.ms, 0.0)
    return rows
