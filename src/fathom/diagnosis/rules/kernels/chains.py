"""Elementwise operations that go through memory one by one: plain ones, norms and losses written out."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.rule import (
    MOST_FAMILIES,
    Candidate,
    Claim,
    Evidence,
    Found,
    family_totals,
    rule,
    usual,
)
from fathom.diagnosis.signals import Chain, Signals

NORM = re.compile(r"aten::(mean|var|var_mean|std|rsqrt)$")
LOSS = re.compile(r"aten::(_log_softmax|_softmax|log|exp|logsumexp|gather|amax|max|one_hot)$")
VOCABULARY = 8192  # a last dimension as long as that is one
SAYS = {
    "kernels-unfused-norm": "normalisation in pieces",
    "kernels-unfused-loss": "pieces of the loss over the vocabulary",
    "kernels-unfused-elementwise": "elementwise kernels in a row over the same tensor",
}


@rule(*SAYS)
def chains(signals: Signals) -> Found:
    """What a kernel that fuses each chain saves."""
    found: dict[str, list[Chain]] = {}
    for chain in signals["kernels.chains"]:
        found.setdefault(_kind(chain), []).append(chain)
    total = family_totals(signals["kernels.work"])
    for kind, mine in found.items():
        yield _candidate(kind, mine, total)


def _kind(chain: Chain) -> str:
    if chain.last >= VOCABULARY and any(LOSS.search(op) for op in chain.ops):
        return "kernels-unfused-loss"
    if any(NORM.search(op) for op in chain.ops) and len(chain.ops) > 2:
        return "kernels-unfused-norm"
    return "kernels-unfused-elementwise"


def _candidate(kind: str, mine: list[Chain], total: dict[str, float]) -> Candidate:
    saved: dict[str, float] = {}
    for chain in mine:
        for family, ms in chain.saved.items():
            saved[family] = saved.get(family, 0.0) + ms
    largest = sorted(saved, key=lambda family: -saved[family])[:MOST_FAMILIES]
    longest = max(mine, key=lambda chain: chain.saved_ms)
    return Candidate(
        kind=kind,
        claims=[Claim("compute", family, saved[family]) for family in largest],
        evidence=[
            Evidence(SAYS[kind], sum(chain.ms for chain in mine), "ms a step"),
            Evidence(f"the costliest: {', '.join(longest.ops)[:120]}", longest.ms, "ms a step"),
        ],
        changes=tuple(
            f"family:{family}={max(1 - saved[family] / total[family], 0):.6f}"
            for family in largest
            if family and total.get(family)
        ),
        doubt=0.3,
        confidence=0.85,
        check="torch.compile the module, and time the step",
        source=usual((chain.source, chain.saved_ms) for chain in mine),
        module=usual((chain.module, chain.saved_ms) for chain in mine),
    )
