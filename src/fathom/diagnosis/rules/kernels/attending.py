"""The time of fused attention, from its sizes and the ceiling of its dtype."""

from __future__ import annotations

from fathom.analysis.work import ATTENTION_LAYOUTS, AttentionLayout
from fathom.diagnosis.signals import Work
from fathom.diagnosis.signals.numbers import DTYPES
from fathom.units import MS_PER_S

REACHED = 0.65  # of the matmul ceiling, by fused attention, forward and backward
CAUSAL = 0.5  # of the scores, with a causal mask
BACKWARD = 2.5  # times the FLOPs of the forward pass


def fused_ms(
    heads: int, queries: int, keys: int, head: int, rate: float, causal: bool, backward: bool
) -> float:
    """Milliseconds of one pass over `heads` heads of all sequences, at a ceiling of `rate` FLOP/s."""
    flops = 4.0 * heads * queries * keys * head * (CAUSAL if causal else 1.0)
    return MS_PER_S * flops * (BACKWARD if backward else 1.0) / (REACHED * rate)


def layout_of(work: Work) -> AttentionLayout | None:
    """The argument layout of the attention op that launched this work; None for an unknown op.

    The op is the innermost one: `_scaled_dot_product_efficient_attention` takes (batch, heads, tokens, head),
    and passes (batch, tokens, heads, head) to `_efficient_attention_forward`, which launches.
    """
    return next((ATTENTION_LAYOUTS[name] for name in reversed(work.ops) if name in ATTENTION_LAYOUTS), None)


def needed_ms(work: Work, rates: dict[str, float], *, causal: bool) -> float | None:
    """Milliseconds of fused attention for this work; None if the op, its sizes or the ceiling are unknown."""
    layout = layout_of(work)
    if layout is None:
        return None
    sizes = [size for size in work.sizes[layout.query : layout.query + 2] if len(size) == 4]
    dtype = next((DTYPES[name] for name in work.types if name in DTYPES), None)
    rate = rates.get(f"matmul.{dtype}")
    if len(sizes) < 2 or not rate:
        return None
    heads, tokens = (1, 2) if layout.heads_first else (2, 1)
    query, key = sizes
    every, backward = query[0] * query[heads], layout.backward
    return work.count * fused_ms(every, query[tokens], key[tokens], query[3], rate, causal, backward)


def head_of(work: Work) -> int:
    """The head size of the first input; 0 if unknown."""
    query = work.sizes[0] if work.sizes else []
    return query[-1] if len(query) == 4 else 0
