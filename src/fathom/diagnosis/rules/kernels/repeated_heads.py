"""Keys and values that are copied for each head of queries, although attention could share them."""

from __future__ import annotations

from math import prod

from fathom.diagnosis.rules.candidates import count_of, mended, ms_of, on_processor
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work

CHECK = "pass enable_gqa=True with the keys and values as they are, and time the step"
DOUBT = 0.15  # on one core of an EPYC attention reads less, too: up to 13 % of the copies' time more
ATTENTION = "aten::scaled_dot_product_attention"


@rule("kernels-repeated-heads")
def repeated_heads(signals: Signals) -> Candidates:
    """Find copies that repeat heads; nothing of them is left, and while decoding, attention reads less."""
    works: list[Work] = signals["kernels.repeated_heads"]
    if not works:
        return
    group, parts = works[0].sizes[0][2], [(works, 0.0)]
    evidence = [
        Evidence("copies of keys and values that repeat heads", ms_of(works), "ms per step"),
        Evidence("heads of queries that share keys and values", float(group), "heads"),
    ]
    if not on_processor(signals):
        evidence.append(Evidence("number of these copies", count_of(works), "per step"))
        if reading := _of_one_query(signals, works):
            evidence.append(
                Evidence("attention that reads them for each head", ms_of(reading), "ms per step")
            )
            parts.append((reading, 1 / group))
    yield mended(signals, *parts, evidence=evidence, doubt=DOUBT, check=CHECK)


def _of_one_query(signals: Signals, copies: list[Work]) -> list[Work]:
    """Return the attention of one query a head to the copies, whose time is that of reading them.

    Kernels order the axes in their own ways, so sizes are compared by their products.
    """
    copied = {(prod(size), size[3]) for size in (work.sizes[0] for work in copies)}
    return [
        work
        for work in signals["kernels.work"]
        if ATTENTION in work.ops
        and len(work.sizes) > 1
        and any(
            prod(work.sizes[1]) == elements and prod(work.sizes[0]) * length == elements
            for elements, length in copied
        )
    ]
