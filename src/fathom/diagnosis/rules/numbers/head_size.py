"""Attention heads of a size that no fused kernel supports without padding."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.kernels.attending import head_of
from fathom.diagnosis.rules.numbers.large_heads import large_heads
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
from fathom.diagnosis.signals import Signals, Work

ATTENTION = "scaled_dot_product"
WORD = 8  # heads are padded to a multiple of this size
FACTOR = 0.58  # of the time, in a kernel for this device: 333 of 575 TFLOP/s on an H200
PADS = re.compile(r"constant_pad_nd|ConstantPadNd|SliceBackward")
MOVES = re.compile(r"aten::(copy_|fill_|cat)$")


@rule("numbers-head-size")
def head_size(signals: Signals) -> Candidates:
    """Find heads whose size is no multiple of a word, and heads that are too large."""
    yield from large_heads(signals)
    yield from _padded(signals)


def _padded(signals: Signals) -> Candidates:
    """Padding, and attention slowed by it: both are below the attention op."""
    works = signals["kernels.work"]
    mine = [work for work in works if ATTENTION in work.path]
    sizes = {size: ms for work in mine if (size := head_of(work)) for ms in [work.ms] if size % WORD}
    if not sizes:
        return
    size = max(sizes, key=lambda s: sizes[s])
    padded = -(-size // WORD) * WORD
    moving = [work for work in works if _moves(work, size, padded)]
    attending = [work for work in mine if work not in moving]
    ms, total = sum(work.ms for work in (*moving, *attending)), family_totals(works)
    yield Candidate(
        kind="numbers-head-size",
        claims=[*claims_of(attending, 1 - FACTOR), *claims_of(moving)],
        evidence=[
            Evidence(f"attention over heads of {size}, padding included", ms, "ms per step"),
            Evidence(
                "size after padding (sizes that fit are multiples of 64)",
                padded,
                "numbers",
            ),
        ],
        changes=(*shrink(attending, total, FACTOR), *shrink(moving, total, 0.0)),
        doubt=0.2,
        confidence=0.85,
        check="change the number of heads so that the head size is 64 or 128, and time the step",
        **site(mine, "source", "family"),
    )


def _moves(work: Work, size: int, padded: int) -> bool:
    """Whether it only pads heads, removes the padding, or reorders padded heads."""
    around = PADS.search(work.path) or ATTENTION in work.path
    heads = any(len(sizes) == 4 and sizes[-1] in (size, padded) for sizes in work.sizes)
    return bool(around and heads and MOVES.search(work.op))
