"""Chains of elementwise kernels that each pass through memory."""

from __future__ import annotations

from collections.abc import Iterator

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.kernels.loss import losses
from fathom.diagnosis.rules.kernels.norm import norms, size_of
from fathom.diagnosis.rules.rule import (
    MOST_FAMILIES,
    Candidate,
    Candidates,
    Claim,
    Evidence,
    family_totals,
    rule,
    usual,
)
from fathom.diagnosis.signals import Chain, Product, Signals, Work

KIND = "kernels-unfused-elementwise"


@rule(KIND)
def chains(signals: Signals) -> Candidates:
    """Find chains that one kernel could fuse; losses and norms have their own rules."""
    works = signals["kernels.work"]
    others = set(_judged(signals.get("numbers.products").value or [], works))
    mine = [chain for chain in signals["kernels.chains"] if (chain.numel, chain.last) not in others]
    if mine:
        yield _candidate(mine, family_totals(works))


def _judged(products: list[Product], works: list[Work]) -> Iterator[tuple[int, int]]:
    """Sizes of the logits of losses, and of the tensors of unfused norms."""
    for layer, _ in losses(products, works):
        yield layer.m * layer.n, layer.n
    for norm in norms(works):
        yield size_of(norm.works[0])


def _candidate(mine: list[Chain], total: dict[str, float]) -> Candidate:
    saved: dict[str, float] = {}
    for chain in mine:
        for family, ms in chain.saved.items():
            saved[family] = saved.get(family, 0.0) + ms
    largest = sorted(saved, key=lambda family: -saved[family])[:MOST_FAMILIES]
    longest = max(mine, key=lambda chain: chain.saved_ms)
    return Candidate(
        kind=KIND,
        claims=[Claim(Entry.COMPUTE, family, saved[family]) for family in largest],
        evidence=[
            Evidence(
                "consecutive elementwise kernels over the same tensor",
                sum(chain.ms for chain in mine),
                "ms per step",
            ),
            Evidence(f"costliest chain: {', '.join(longest.ops)[:120]}", longest.ms, "ms per step"),
        ],
        changes=tuple(
            f"family:{family}={max(1 - saved[family] / total[family], 0):.6f}"
            for family in largest
            if family and total.get(family)
        ),
        doubt=0.2,
        confidence=0.85,
        check="torch.compile the module, and time the step",
        source=usual((chain.source, chain.saved_ms) for chain in mine),
        module=usual((chain.module, chain.saved_ms) for chain in mine),
    )
