"""Attention heads of a size that no fused kernel supports, or supports only with padding."""

from __future__ import annotations

import re

from fathom.diagnosis.rules.candidates import mended, ms_of, rates_of, site
from fathom.diagnosis.rules.kernels.attention import head_of, needed_ms
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work

ATTENTION = "scaled_dot_product"
WORD = 8  # heads are padded to a multiple of this size
FACTOR = 0.58  # of the time, in a kernel for this device: 333 of 575 TFLOP/s on an H200
PADS = re.compile(r"constant_pad_nd|ConstantPadNd|SliceBackward")
MOVES = re.compile(r"aten::(copy_|fill_|cat)$")
LARGEST = 256  # head size that flash attention and cuDNN support
ATTENDS = re.compile(r"aten::_(efficient|flash)_attention_(forward|backward)$")


@rule("numbers-head-size")
def head_size(signals: Signals) -> Candidates:
    """Find heads whose size is not a multiple of a word, and heads that are too large."""
    yield from _too_large(signals)
    yield from _padded(signals)


def _padded(signals: Signals) -> Candidates:
    """Return the padding and the attention that it slows down, both of which run below the attention op."""
    works = signals["kernels.work"]
    mine = [work for work in works if ATTENTION in work.path]
    sizes = {size: ms for work in mine if (size := head_of(work)) for ms in [work.ms] if size % WORD}
    if not sizes:
        return
    size = max(sizes, key=lambda s: sizes[s])
    padded = -(-size // WORD) * WORD
    moving = [work for work in works if _moves(work, size, padded)]
    attending = [work for work in mine if work not in moving]
    yield mended(
        signals,
        (attending, FACTOR),
        (moving, 0.0),
        place=(),
        evidence=[
            Evidence(
                f"attention over heads of {size}, padding included",
                ms_of((*moving, *attending)),
                "ms per step",
            ),
            Evidence("size after padding (sizes that fit are multiples of 64)", padded, "numbers"),
        ],
        confidence=0.85,
        check="change the number of heads so that the head size is 64 or 128, and time the step",
        **site(mine, "source", "family"),
    )


def _moves(work: Work, size: int, padded: int) -> bool:
    """Return whether the work only pads heads, removes padding, or reorders padded heads."""
    around = PADS.search(work.path) or ATTENTION in work.path
    heads = any(len(sizes) == 4 and sizes[-1] in (size, padded) for sizes in work.sizes)
    return bool(around and heads and MOVES.search(work.op))


def _too_large(signals: Signals) -> Candidates:
    """Report heads that are too large; more but smaller heads need the same FLOPs in a fused kernel."""
    works = signals["kernels.work"]
    mine = [work for work in works if ATTENDS.search(work.op) and head_of(work) > LARGEST]
    now, needed = ms_of(mine), _needed_ms(mine, rates_of(signals))
    if mine and needed is not None and needed < now:
        yield mended(
            signals,
            (mine, needed / now),
            place=("source", "family"),
            evidence=[
                Evidence(f"attention over heads of {max(map(head_of, mine))}", now, "ms per step"),
                Evidence("largest head size of fused kernels", LARGEST, "numbers"),
            ],
            confidence=0.8,
            check="divide the width into more heads of size 64 or 128, and time the step",
        )


def _needed_ms(mine: list[Work], rates: dict[str, float]) -> float | None:
    """Return the milliseconds of a fused kernel that supported the heads; None if unknown for any of them."""
    needs = [needed_ms(work, rates, causal=False) for work in mine]
    known = [need for need in needs if need is not None]
    return sum(known) if len(known) == len(needs) else None
