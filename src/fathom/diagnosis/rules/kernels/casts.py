"""Conversions that are undone at once."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals


@rule("kernels-needless-casts")
def casts(signals: Signals) -> Candidates:
    """To a wider type and back: nothing but the passes over memory is left of it."""
    mine = signals["kernels.round_trips"]
    if not mine:
        return
    yield Candidate(
        kind="kernels-needless-casts",
        claims=claims_of(mine),
        evidence=[
            Evidence("converting to a wider type and back", sum(work.ms for work in mine), "ms a step"),
            Evidence("conversions", sum(work.count for work in mine), "a step"),
        ],
        changes=shrink(mine, family_totals(signals["kernels.work"]), 0.0),
        doubt=0.15,
        check="leave out the conversions, and compare the loss and the step",
        **site(mine),
    )
