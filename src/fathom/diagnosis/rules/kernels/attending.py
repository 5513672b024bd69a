"""What fused attention needs, by its sizes and the ceiling of its type."""

from __future__ import annotations

REACHED = 0.65  # of the products' ceiling by fused attention, forward and backward
CAUSAL = 0.5  # of the scores, where later tokens are not seen
BACKWARD = 2.5  # times the forward pass's products


def fused_ms(
    heads: int, queries: int, keys: int, head: int, rate: float, causal: bool, backward: bool
) -> float:
    """Milliseconds of one pass over `heads` heads of all sequences, at a ceiling of `rate` FLOP/s."""
    flops = 4.0 * heads * queries * keys * head * (CAUSAL if causal else 1.0)
    return 1e3 * flops * (BACKWARD if backward else 1.0) / (REACHED * rate)
