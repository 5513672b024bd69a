"""Casts that are undone at once."""

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
    """Find casts to a wider dtype and back: only their memory traffic has an effect."""
    mine = signals["kernels.round_trips"]
    if not mine:
        return
    yield Candidate(
        kind="kernels-needless-casts",
        claims=claims_of(mine),
        evidence=[
            Evidence("casts to a wider dtype and back", sum(work.ms for work in mine), "ms per step"),
            Evidence("number of casts", sum(work.count for work in mine), "per step"),
        ],
        changes=shrink(mine, family_totals(signals["kernels.work"]), 0.0),
        doubt=0.15,
        check="remove the casts, and compare the loss and the step",
        **site(mine),
    )
