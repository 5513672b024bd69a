"""Inference and evaluation with autograd on, which keeps activations."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Kept, Signals
from fathom.units import MB

KIND = "framework-autograd-in-inference"
LEAST = 8  # blocks: fewer may be outputs and a cache
MOSTLY = 0.5  # of the blocks that a step allocates: without autograd, the step frees temporary ones


@rule(KIND)
def recorded_graph(signals: Signals) -> Candidates:
    """Find steps with autograd on that keep most of their tensors, and never run a backward pass."""
    kept: Kept = signals["framework.kept"]
    if kept.left < LEAST or kept.left < MOSTLY * kept.allocated:
        return
    share = 100 * kept.left / kept.allocated
    yield Candidate(
        kind=KIND,
        claims=[],
        evidence=[
            Evidence("memory that a step allocates and has not freed at its end", kept.left_bytes / MB, "MB"),
            Evidence("share of the blocks that it allocates", share, "%"),
        ],
        confidence=0.85,
        costless=True,
        check="compare the peak memory under torch.inference_mode()",
    )
