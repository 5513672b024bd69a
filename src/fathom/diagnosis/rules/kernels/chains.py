"""Elementwise operations that go through memory one by one: plain ones, and norms written out."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.kernels.loss import losses
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
SAYS = {
    "kernels-unfused-norm": "normalisation in pieces",
    "kernels-unfused-elementwise": "elementwise kernels in a row over the same tensor",
}


@rule(*SAYS)
def chains(signals: Signals) -> Found:
    """What a kernel that fuses each chain saves."""
    found: dict[str, list[Chain]] = {}
    works = signals["kernels.work"]
    layers = [layer for layer, _ in losses(signals.get("numbers.products").value or [], works)]
    for chain in signals["kernels.chains"]:
        if any(chain.last == one.n and chain.numel == one.m * one.n for one in layers):
            continue  # of the loss, which is judged as a whole
        found.setdefault(_kind(chain), []).append(chain)
    total = family_totals(works)
    for kind, mine in found.items():
        yield _candidate(kind, mine, total)


def _kind(chain: Chain) -> str:
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
