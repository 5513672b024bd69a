"""Backward passes that continue after the last gradient that an optimizer uses."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    usual,
)
from fathom.diagnosis.signals import Signals


@rule("kernels-needless-backward")
def unused_gradients(signals: Signals) -> Candidates:
    """Find gradients of parameters that no optimizer has."""
    gradients = signals["kernels.unused_gradients"]
    if not gradients.unused or not gradients.works:
        return
    yield Candidate(
        kind="kernels-needless-backward",
        claims=claims_of(gradients.works),
        evidence=[
            Evidence("gradients of parameters that no optimizer has", float(gradients.unused), "per step"),
            Evidence("parameters of the optimizers", float(gradients.used), "per step"),
            Evidence(
                "backward work after the last gradient used",
                sum(work.ms for work in gradients.works),
                "ms per step",
            ),
        ],
        changes=shrink(gradients.works, family_totals(signals["kernels.work"]), 0.0),
        doubt=0.25,
        confidence=0.75,
        check="requires_grad_(False) on parameters that are not trained, and compare the loss and the step",
        family=usual((work.family, work.ms) for work in gradients.works),
    )
