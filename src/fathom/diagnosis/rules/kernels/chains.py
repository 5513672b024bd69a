"""Chains of elementwise kernels that each read and write memory."""

from __future__ import annotations

from collections.abc import Iterator

from fathom.diagnosis.grouping import listed, summed
from fathom.diagnosis.rules.candidates import ms_of, saving, usual
from fathom.diagnosis.rules.kernels.loss import losses
from fathom.diagnosis.rules.kernels.norm import norms, size_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Chain, Product, Signals, Work


@rule("kernels-unfused-elementwise")
def chains(signals: Signals) -> Candidates:
    """Find chains that one kernel could fuse; losses and norms have their own rules."""
    works = signals["kernels.work"]
    others = set(_judged(signals.get("numbers.products").value or [], works))
    mine = [chain for chain in signals["kernels.chains"] if (chain.numel, chain.last) not in others]
    if mine:
        yield _candidate(signals, mine)


def _judged(products: list[Product], works: list[Work]) -> Iterator[tuple[int, int]]:
    """Return the sizes of losses' logits and of unfused norms' tensors."""
    for layer, _ in losses(products, works):
        yield layer.m * layer.n, layer.n
    for norm in norms(works):
        yield size_of(norm.works[0])


def _candidate(signals: Signals, mine: list[Chain]) -> Candidate:
    longest = max(mine, key=lambda chain: chain.saved_ms)
    return saving(
        summed(pair for chain in mine for pair in chain.saved.items()),
        signals,
        evidence=[
            Evidence("consecutive elementwise kernels over the same tensor", ms_of(mine), "ms per step"),
            Evidence(f"costliest chain: {listed(longest.ops)}", longest.ms, "ms per step"),
        ],
        confidence=0.85,
        check="compile the module with torch.compile, and time the step",
        source=usual((chain.source, chain.saved_ms) for chain in mine),
        module=usual((chain.module, chain.saved_ms) for chain in mine),
    )
