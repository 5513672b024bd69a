"""Inference and evaluation with autograd on, which keeps activations."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import on_processor, rows
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Kept, Signals
from fathom.units import MB

LEAST = 8  # blocks: fewer may be outputs and a cache
MOSTLY = 0.5  # of the blocks that a step allocates: without autograd, the step frees temporary ones

SHARE = 0.2  # of the host's time per op: 12 to 27 % for models of tiny layers on a CPU, 19 % on an H200
LAUNCHING = (Entry.DISPATCHING, Entry.PYTHON)
ON_PROCESSOR = "on a CPU, the recorded time of an op contains autograd's bookkeeping"
FASTER = tuple(f"{name}={1 - SHARE:g}" for name in ("dispatching", "python"))


@rule("framework-autograd-in-inference")
def recorded_graph(signals: Signals) -> Candidates:
    """Find steps with autograd on that keep most of their tensors, and never run a backward pass.

    If the device waits for the host, the bookkeeping of each op costs time.
    """
    kept: Kept = signals["framework.kept"]
    if kept.left < LEAST or kept.left < MOSTLY * kept.allocated:
        return
    share, processor = 100 * kept.left / kept.allocated, on_processor(signals)
    yield Candidate(
        claims=[] if processor else rows(signals, *LAUNCHING, share=SHARE),
        evidence=[
            Evidence("memory that a step allocates and has not freed at its end", kept.left_bytes / MB, "MB"),
            Evidence("share of the blocks that it allocates", share, "%"),
        ],
        changes=() if processor else FASTER,
        spill=() if processor else LAUNCHING,
        doubt=0.5,
        confidence=0.85,
        costless=True,
        unpredicted=ON_PROCESSOR if processor else "",
        check="compare the step time and the peak memory under torch.inference_mode()",
    )
