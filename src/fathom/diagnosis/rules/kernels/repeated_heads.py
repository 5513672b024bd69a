"""Keys and values that are copied for each head of queries, although attention could share them."""

from __future__ import annotations

from fathom.diagnosis.rules.candidates import (
    count_of,
    mended,
    ms_of,
    on_processor,
)
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work

KIND = "kernels-repeated-heads"
CHECK = "pass enable_gqa=True with the keys and values as they are, and time the step"
DOUBT = 0.15  # attention itself reads less, too: up to 13 % of the copies' time more on one core of an EPYC


@rule(KIND)
def repeated_heads(signals: Signals) -> Candidates:
    """Find copies that repeat heads; nothing of them is left, and attention takes no longer."""
    works: list[Work] = signals["kernels.repeated_heads"]
    if not works:
        return
    evidence = [
        Evidence("copies of keys and values that repeat heads", ms_of(works), "ms per step"),
        Evidence("heads of queries that share keys and values", float(works[0].sizes[0][2]), "heads"),
    ]
    if not on_processor(signals):
        evidence.append(Evidence("number of these copies", count_of(works), "per step"))
    yield mended(signals, KIND, (works, 0.0), evidence=evidence, doubt=DOUBT, check=CHECK)
