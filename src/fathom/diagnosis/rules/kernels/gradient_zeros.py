"""Gradients that are set to zero, to which the backward pass then adds."""

from __future__ import annotations

import msgspec

from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Claim,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals, Work

ZEROING = "Optimizer.zero_grad#"
ADDING = "torch::autograd::AccumulateGrad > aten::add_"
PASSES = 3.0  # per pass of zeroing: both gradients are read, and their sum is written


class Adding(msgspec.Struct, frozen=True):
    """Additions to gradients, and the share that adds to zeros (in the first micro-batch)."""

    works: list[Work]
    share: float

    @property
    def claims(self) -> list[Claim]:
        return claims_of(self.works, self.share)


@rule("kernels-gradient-memset")
def gradient_zeros(signals: Signals) -> Candidates:
    """Find zeroed gradients: if they were dropped, the backward pass would write them without adding."""
    works = signals["kernels.work"]
    zeroing = [work for work in works if ZEROING in work.path]
    if zeroing:
        adding = _adding(works, sum(work.ms for work in zeroing))
        yield _candidate(zeroing, adding, family_totals(works))


def _adding(works: list[Work], zeroing_ms: float) -> Adding:
    mine = [work for work in works if work.path.endswith(ADDING)]
    ms = sum(work.ms for work in mine)
    return Adding(mine, min(PASSES * zeroing_ms / ms, 1.0) if ms > 0 else 0.0)


def _candidate(zeroing: list[Work], adding: Adding, total: dict[str, float]) -> Candidate:
    added = sum(claim.ms for claim in adding.claims)
    return Candidate(
        kind="kernels-gradient-memset",
        claims=[*claims_of(zeroing), *adding.claims],
        evidence=[
            Evidence("time to zero gradients", sum(work.ms for work in zeroing), "ms per step"),
            Evidence("number of these kernels", sum(work.count for work in zeroing), "per step"),
            Evidence("time to add to these zeros", added, "ms per step"),
        ],
        changes=(*shrink(zeroing, total, 0.0), *shrink(adding.works, total, 1 - adding.share)),
        doubt=0.2,
        check="optimizer.zero_grad(set_to_none=True), and time the step",
        **site(zeroing, "source", "module", "region", "family"),
    )
