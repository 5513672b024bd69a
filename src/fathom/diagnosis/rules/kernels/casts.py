"""Conversions that are undone at once."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import (
    Candidate,
    Evidence,
    Found,
    claims_of,
    family_totals,
    rule,
    shrink,
    usual,
)
from fathom.diagnosis.signals import Signals


@rule("kernels-needless-casts")
def casts(signals: Signals) -> Found:
    """To a wider type and back: nothing but the passes over memory is left of it."""
    mine = signals["kernels.round_trips"]
    if not mine:
        return
    yield Candidate(
        kind="kernels-needless-casts",
        claims=claims_of(mine),
        evidence=[
            Evidence("converting to a wider type and back", sum(one.ms for one in mine), "ms a step"),
            Evidence("conversions", sum(one.count for one in mine), "a step"),
        ],
        changes=shrink(mine, family_totals(signals["kernels.work"]), 0.0),
        doubt=0.15,
        check="leave out the conversions, and compare the loss and the step",
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )
