"""Losses over a vocabulary: passes over tensors as large as the logits, compared with the library's loss."""

from __future__ import annotations

import re
from math import prod

from fathom.analysis.entries import Entry
from fathom.analysis.work import SIZE
from fathom.diagnosis.rules.candidates import memory_rate, mended, ms_of, number_of_kernels, types_of
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
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
    """Find the layer with the costliest unfused loss."""
    candidates = losses(signals["numbers.products"], signals["kernels.work"])
    if not candidates:
        return
    layer, mine = max(candidates, key=lambda pair: ms_of(pair[1]))
    now, needed = ms_of(mine), _library_ms(layer, mine, memory_rate(signals, REACHED, mine))
    if needed < WORTH * now:
        yield mended(
            signals,
            (mine, needed / now),
            evidence=[
                Evidence(f"kernels over the logits, in {types_of(mine)}", now, "ms per step"),
                Evidence("time that the library's loss would take", needed, "ms per step"),
                number_of_kernels(mine),
            ],
            doubt=0.15,
            confidence=0.85,
            check="use F.cross_entropy(logits, classes), and time the step",
        )


def losses(products: list[Product], works: list[Work]) -> list[tuple[Product, list[Work]]]:
    """Return the layers of the forward pass that end in a loss, with all work on their outputs."""
    forward = (product for product in products if not product.work.backward)
    layers = [product for product in forward if product.batch == 1 and product.n >= VOCABULARY]
    computing = [work for work in works if work.entry == Entry.COMPUTE]
    return [(layer, mine) for layer in layers if (mine := _on(layer, computing))]


def of_logits(work: Work, layer: Product) -> bool:
    """Return whether the work's largest tensor has the size of the layer's output."""
    largest = max(work.sizes, key=lambda sizes: prod(sizes) if sizes else 0, default=[])
    return bool(largest) and largest[-1] == layer.n and prod(largest) == layer.m * layer.n


def _on(layer: Product, works: list[Work]) -> list[Work]:
    """Return all work on the logits if it includes a loss, else none."""
    mine = [work for work in works if of_logits(work, layer) and not PRODUCT.search(work.path)]
    return mine if any(LOSS.search(work.path) for work in mine) else []


def _library_ms(layer: Product, mine: list[Work], rate: float) -> float:
    passes = FORWARD + BACKWARD * any(work.backward for work in mine)
    calls = max(layer.work.count, 1.0)
    return MS_PER_S * calls * passes * layer.m * layer.n * SIZE[layer.dtype] / rate
