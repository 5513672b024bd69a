"""Losses over a vocabulary: passes over tensors of the logits' size, against the library's loss."""

from __future__ import annotations

import re
from math import prod

from fathom.analysis.entries import Entry
from fathom.analysis.work import DTYPES, SIZE
from fathom.diagnosis.rules.kernels.reaching import memory_rate
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
from fathom.diagnosis.signals import Product, Signals, Work
from fathom.units import MS_PER_S

VOCABULARY = 8192  # a last dimension of at least this size, made by a layer, is a vocabulary
PRODUCT = re.compile(r"aten::(linear|matmul|mm|addmm|bmm|baddbmm)\b")
# Passes of the library: forward, two reads of logits and one write; backward, a fill, two reads, one write.
FORWARD, BACKWARD = 3, 4
REACHED = 0.75  # of the memory ceiling, by kernels over rows of this length
WORTH = 0.7  # of the present time: closer to the library's time is within its variation
LOSS = re.compile(r"aten::(_?(log_)?softmax|logsumexp|gather|one_hot|scatter_?|nll_loss\w*)\b")


@rule("kernels-unfused-loss")
def loss(signals: Signals) -> Candidates:
    """Find the layer whose output has the costliest unfused loss."""
    candidates = losses(signals["numbers.products"], signals["kernels.work"])
    if not candidates:
        return
    layer, mine = max(candidates, key=lambda pair: sum(work.ms for work in pair[1]))
    now, rate = sum(work.ms for work in mine), memory_rate(signals, REACHED, mine)
    needed = _library_ms(layer, mine, rate)
    if needed < WORTH * now:
        yield _candidate(mine, now, needed, family_totals(signals["kernels.work"]))


def losses(products: list[Product], works: list[Work]) -> list[tuple[Product, list[Work]]]:
    """Layers of the forward pass that end in a loss, with all work on their outputs."""
    layers = [
        product
        for product in products
        if product.batch == 1 and product.n >= VOCABULARY and not _behind(product.work)
    ]
    outputs = [
        (layer, _on(layer, [work for work in works if work.entry == Entry.COMPUTE])) for layer in layers
    ]
    return [(layer, mine) for layer, mine in outputs if mine]


def of_logits(work: Work, layer: Product) -> bool:
    """Whether its largest tensor has the size of the layer's output."""
    largest = max(work.sizes, key=lambda sizes: prod(sizes) if sizes else 0, default=[])
    return bool(largest) and largest[-1] == layer.n and prod(largest) == layer.m * layer.n


def _on(layer: Product, works: list[Work]) -> list[Work]:
    """All work on the logits if it includes a loss, else none."""
    mine = [work for work in works if of_logits(work, layer) and not PRODUCT.search(work.path)]
    return mine if any(LOSS.search(work.path) for work in mine) else []


def _behind(work: Work) -> bool:
    return work.path.startswith("autograd::")


def _library_ms(layer: Product, mine: list[Work], rate: float) -> float:
    size = SIZE[layer.dtype]
    passes = FORWARD + BACKWARD * any(_behind(work) for work in mine)
    calls = max(layer.work.count, 1.0)
    return MS_PER_S * calls * passes * layer.m * layer.n * size / rate


def _candidate(mine: list[Work], now: float, needed: float, total: dict[str, float]) -> Candidate:
    types = sorted({DTYPES.get(name, name) for work in mine for name in work.types[:1]} - {""})
    return Candidate(
        kind="kernels-unfused-loss",
        claims=claims_of(mine, 1 - needed / now),
        evidence=[
            Evidence(
                f"kernels over the logits, in {', '.join(types) or 'unknown types'}", now, "ms per step"
            ),
            Evidence("time of the library's loss, at the rate it reaches", needed, "ms per step"),
            Evidence("number of these kernels", sum(work.count for work in mine), "per step"),
        ],
        changes=shrink(mine, total, needed / now),
        doubt=0.15,
        confidence=0.85,
        check="F.cross_entropy(logits, classes) instead, and time the step",
        **site(mine),
    )
