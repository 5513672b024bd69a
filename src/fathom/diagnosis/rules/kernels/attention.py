"""The time of fused attention, and costs around it: materialised masks and copied caches."""

from __future__ import annotations

import json
import re

from fathom.analysis.work import ATTENTION_LAYOUTS, AttentionLayout
from fathom.diagnosis.rules.candidates import PLACE, mended, ms_of, number_of_kernels, rates_of
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work
from fathom.diagnosis.signals.numbers import DTYPES
from fathom.units import MS_PER_S

REACHED = 0.65  # of the matmul ceiling, by fused attention, forward and backward
CAUSAL = 0.5  # of the scores, with a causal mask
BACKWARD = 2.5  # times the FLOPs of the forward pass
# Position of the mask among the arguments of each fused op: forward, backward (native_functions.yaml).
PLACES = {"_efficient_attention": (3, 4), "cudnn_attention": (3, 8), "_fused_attention_overrideable": (3, 4)}
PRODUCTS = re.compile("fmha|flash|sdpa")  # kernels that compute attention; others prepare or round
PAIRS = 64 * 64  # queries times keys: a smaller mask costs nothing
HALF = 0.5  # of the scores are skipped with is_causal, or by blocks of flex_attention
GROWS = 4  # times longer than the appended part: then it is a cache
CHECK = {
    "kernels-materialised-mask": "is_causal=True or flex_attention, and time the step",
    "kernels-kv-cache-concat": "preallocate the cache and write it in place, and time the step",
}


@rule(*CHECK)
def attention(signals: Signals) -> Candidates:
    """Find masks among the inputs of fused attention, and concatenations that append to a cache."""
    works = signals["kernels.work"]
    masked = [work for work in works if _masked(work)]
    grown = [work for work in works if work.op == "aten::cat" and grows(work.shapes)]
    cases = (
        (masked, _without_mask(masked, rates_of(signals)), "attention kernels that read a mask"),
        (grown, 0.05, "copying a cache to append to it"),
    )
    for (kind, check), (mine, factor, says) in zip(CHECK.items(), cases, strict=True):
        if mine:
            evidence = [Evidence(says, ms_of(mine), "ms per step"), number_of_kernels(mine)]
            yield mended(signals, (mine, factor), kind=kind, place=PLACE, evidence=evidence, check=check)


def _masked(work: Work) -> bool:
    """Return whether the mask has an entry per pair of query and key; a padding mask has one per key."""
    places = next((PLACES[name] for name in PLACES if name in work.path), None)
    if places is None:
        return False
    place = places["backward" in work.path.lower()]
    mask = work.sizes[place] if len(work.sizes) > place else []
    return len(mask) >= 2 and min(mask[-2:]) > 1 and mask[-2] * mask[-1] >= PAIRS


def _without_mask(masked: list[Work], rates: dict[str, float]) -> float:
    """Return the share of the time without the mask: half the FLOPs at the usual rate, or half the time."""
    now = ms_of(masked)
    needs = [needed_ms(work, rates, causal=True) for work in masked if PRODUCTS.search(work.family)]
    known = [need for need in needs if need is not None]
    return min(sum(known) / now, HALF) if now > 0 and known and len(known) == len(needs) else HALF


def grows(shapes: str | None) -> bool:
    """Return whether these are the shapes of a cache and of the part appended to it."""
    try:
        parts = json.loads(shapes or "[]")[0]
        (old, new) = parts
        differing = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
        return len(old) >= 3 and len(differing) == 1 and differing[0][0] >= GROWS * differing[0][1] > 0
    except (ValueError, TypeError, IndexError, KeyError):
        return False


def fused_ms(
    heads: int, queries: int, keys: int, head: int, rate: float, causal: bool, backward: bool
) -> float:
    """Return the milliseconds of one pass over `heads` heads of all sequences, at `rate` FLOP/s."""
    flops = 4.0 * heads * queries * keys * head * (CAUSAL if causal else 1.0)
    return MS_PER_S * flops * (BACKWARD if backward else 1.0) / (REACHED * rate)


def layout_of(work: Work) -> AttentionLayout | None:
    """Return the argument layout of the attention op that launched this work; None for an unknown op.

    The op is the innermost one: `_scaled_dot_product_efficient_attention` takes (batch, heads, tokens, head),
    and passes (batch, tokens, heads, head) to `_efficient_attention_forward`, which launches.
    """
    return next((ATTENTION_LAYOUTS[name] for name in reversed(work.ops) if name in ATTENTION_LAYOUTS), None)


def needed_ms(work: Work, rates: dict[str, float], *, causal: bool) -> float | None:
    """Return the milliseconds of fused attention for this work; None if op, sizes or ceiling are unknown."""
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
    """Return the head size of the first input; 0 if unknown."""
    query = work.sizes[0] if work.sizes else []
    return query[-1] if len(query) == 4 else 0
